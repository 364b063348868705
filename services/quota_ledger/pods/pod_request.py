"""The request with which a pod counts in its quota, and whether it may be preempted.

Source: spec/quota.md 2.1, 2.2; upstream pkg/scheduler/plugins/elasticquota/plugin_helper.go.
"""

import msgspec

from shared.domain.pod_requests import pod_requests, whole
from shared.kube.elastic_quota import PREEMPTIBLE, RENAMED
from shared.kube.pod import Pod, PodStatus


def counted_request(pod: Pod, *, overhead: bool = True) -> dict[str, int]:
    """Returns a pod's request by its spec; a resize in progress does not count.

    Returns:
        resource -> amount; cpu in milli-cores, everything else in whole units.
    """
    if pod.status.container_statuses or pod.status.init_container_statuses:
        pod = msgspec.structs.replace(pod, status=PodStatus())
    if not overhead and pod.spec.overhead:
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, overhead=None))
    request = whole(pod_requests(pod))
    for old, new in RENAMED.items():
        if old in request:
            request[new] = request.pop(old)
    return request


def is_preemptible(pod: Pod) -> bool:
    """Returns whether a pod may be preempted: unless its label says no."""
    return (pod.metadata.labels or {}).get(PREEMPTIBLE) != "false"
