"""The contexts and subjects of the quota ledger."""

from shared.domain.quota_charge import SUBJECT
from shared.runtime.manifest import Manifest

MANIFEST = Manifest(
    name="quota-ledger", writes="quota", follows=("cluster", "scheduling", "quota"), subscribes=(SUBJECT,)
)
