"""The quota that a pod waits for because its declaration is rejected: the ledger counts the pod elsewhere meanwhile."""

from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_reason_codes import REJECTED
from shared.kube.elastic_quota import QUOTA_NAME


def rejected_quota_of(record: PodRecord) -> str:
    """Returns the quota that a waiting pod names and that is rejected; empty without one."""
    if record.pod_class is None or not record.attempts or all(code != REJECTED for _, code in record.reasons):
        return ""
    return record.pod_class.labels.get(QUOTA_NAME, "")
