"""Permissions of action ingest: contexts, subjects, streams, intents."""

from shared.agents import subjects
from shared.runtime.intent_rights import EVICT
from shared.runtime.manifest import Manifest

MANIFEST = Manifest(
    name="action-ingest",
    writes="nodes-*",
    follows=("cluster", "nodes-*"),
    subscribes=(subjects.every_subject(subjects.ACTION),),
    publishes=(subjects.every_subject(subjects.REFUSED), subjects.every_subject(subjects.PODS)),
    intents=(EVICT,),
)
