"""The manifest of the scheduler."""

from shared.domain.quota_charge import SUBJECT as CHARGE
from shared.runtime.manifest import Manifest

MANIFEST = Manifest(
    name="scheduler",
    writes="scheduling",
    follows=("cluster", "scheduling", "quota", "metrics-*"),
    requests=(CHARGE,),
)
