"""What the quota ledger may do."""

from shared.declared import Declared
from shared.domain.quota_charge import SUBJECT

DECLARED = Declared(name="quota-ledger", writes="quota", follows=("cluster", "scheduling", "quota"), hears=(SUBJECT,))
