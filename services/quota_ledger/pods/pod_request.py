"""Which quota a pod belongs to, and what it counts with there.

Source: spec/quota.md 2.1, 2.2; upstream pkg/scheduler/plugins/elasticquota/plugin_helper.go.
"""

import msgspec

from shared.domain.pod_requests import pod_requests, whole
from shared.kube.elastic_quota import PREEMPTIBLE, RENAMED
from shared.kube.pod import Pod, PodStatus

ENDED = ("Succeeded", "Failed")


def counted_request(pod: Pod, *, overhead: bool = True) -> dict[str, int]:
    """What a pod asks for by its spec; what it was resized to does not matter.

    Returns:
        resource -> amount; cpu in milli-cores, everything else in whole units.
    """
    if pod.status.container_statuses or pod.status.init_container_statuses:
        pod = msgspec.structs.replace(pod, status=PodStatus())
    if not overhead and pod.spec.overhead:
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, overhead=None))
    asked = whole(pod_requests(pod))
    for old, new in RENAMED.items():
        if old in asked:
            asked[new] = asked.pop(old)
    return asked


def is_preemptible(pod: Pod) -> bool:
    """Whether a pod may be taken away for others: everything not marked otherwise."""
    return (pod.metadata.labels or {}).get(PREEMPTIBLE) != "false"
