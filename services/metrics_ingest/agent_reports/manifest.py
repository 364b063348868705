"""Permissions of metrics ingest: contexts, subjects, streams."""

from shared.agents import subjects
from shared.runtime.manifest import Manifest

MANIFEST = Manifest(
    name="metrics-ingest",
    writes="metrics-*",
    follows=("cluster", "metrics-*"),
    subscribes=(subjects.every_subject(subjects.REPORT),),
    publishes=(subjects.every_subject(subjects.REFUSED), subjects.every_subject(subjects.SLO)),
    streams=(subjects.SLO_STREAM,),
)
