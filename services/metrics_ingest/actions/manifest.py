"""What action ingest may do."""

from shared.agents import subjects
from shared.manifest import Manifest

MANIFEST = Manifest(
    name="action-ingest",
    writes="nodes-*",
    follows=("cluster", "nodes-*"),
    hears=(subjects.every_subject(subjects.ACTION),),
    says=(subjects.every_subject(subjects.REFUSED), subjects.every_subject(subjects.PODS)),
)
