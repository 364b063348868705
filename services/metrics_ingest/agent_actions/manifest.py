"""Permissions of action ingest: contexts, subjects, streams."""

from shared.agents import subjects
from shared.runtime.manifest import Manifest

MANIFEST = Manifest(
    name="action-ingest",
    writes="nodes-*",
    follows=("cluster", "nodes-*"),
    subscribes=(subjects.every_subject(subjects.ACTION),),
    publishes=(subjects.every_subject(subjects.REFUSED), subjects.every_subject(subjects.PODS)),
)
