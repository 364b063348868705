"""Which quota a pod belongs to, and what it counts with there.

Source: spec/quota.md 2.1, 2.2; upstream pkg/scheduler/plugins/elasticquota/plugin_helper.go.
"""

from collections.abc import Mapping

import msgspec

from shared.domain.requests import pod_requests, whole
from shared.kube.elastic_quota import DEFAULT, PREEMPTIBLE, QUOTA_NAME, RENAMED, DeclaredQuota
from shared.kube.pod import Pod, PodStatus

ENDED = ("Succeeded", "Failed")


class Names:
    """The quotas that pods may name, by any of the three ways.

    Attributes:
        quotas: by name.
    """

    def __init__(self, *, default_group: bool = True) -> None:
        self.quotas: dict[str, DeclaredQuota] = {}
        self._default_group = default_group
        self._of_namespace: dict[str, dict[str, None]] = {}

    def put(self, quota: DeclaredQuota) -> None:
        """A quota's object is this."""
        self.drop(quota.name)
        self.quotas[quota.name] = quota
        for namespace in quota.namespaces:
            self._of_namespace.setdefault(namespace, {})[quota.name] = None

    def drop(self, name: str) -> None:
        """A quota's object is gone."""
        if (quota := self.quotas.pop(name, None)) is not None:
            for namespace in quota.namespaces:
                self._of_namespace[namespace].pop(name, None)

    def resolve(self, namespace: str, labels: Mapping[str, str] | None) -> tuple[str, str]:
        """The quota of a pod, and how it was found: `label`, `namespace`, `binding`, `default`; both empty when nobody's.

        A label that names no quota leads to the default group, not to the rules of namespaces.
        """
        named = (labels or {}).get(QUOTA_NAME, "")
        if not self._default_group:
            return (named, "label") if named in self.quotas else ("", "")
        if named:
            return (named, "label") if named in self.quotas else (DEFAULT, "default")
        same = self.quotas.get(namespace)
        if same is not None and same.namespace == namespace:
            return same.name, "namespace"
        for name in sorted(self._of_namespace.get(namespace, ())):
            return name, "binding"
        return DEFAULT, "default"


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
