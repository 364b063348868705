"""What the scheduler may do."""

from shared.declared import Declared
from shared.domain.quota_charge import SUBJECT as CHARGE

DECLARED = Declared(
    name="scheduler",
    writes="scheduling",
    follows=("cluster", "scheduling", "quota", "metrics-*"),
    asks=(CHARGE,),
)
