"""What metrics ingest may do."""

from shared.agents import subjects
from shared.manifest import Manifest

MANIFEST = Manifest(
    name="metrics-ingest",
    writes="metrics-*",
    follows=("cluster", "metrics-*"),
    hears=(subjects.every_subject(subjects.REPORT),),
    says=(subjects.every_subject(subjects.REFUSED), subjects.every_subject(subjects.SLO)),
    streams=(subjects.SLO_STREAM,),
)
