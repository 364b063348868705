"""Checks of a pod that waiting does not change: which pods are never evicted without an explicit setting.

Source: spec/descheduler.md 3.5 (non-retryable), 4.1; upstream pkg/descheduler/evictions/evictions.go.
"""

from services.descheduler.load_aware.pod_order import EVICTION_COST, NEVER, cost
from services.descheduler.migration.controller_args import MigrationArgs
from shared.domain.node_selection import meets
from shared.domain.priority import SYSTEM_CRITICAL
from shared.kube.kept_annotations import MIRROR
from shared.kube.pod import Pod

CONFIG_SOURCE = "kubernetes.io/config.source"


def protection(pod: Pod, rules: MigrationArgs) -> str:
    """Returns why a pod may not be evicted, as a phrase about the pod; empty where nothing protects it."""
    return _selection(pod, rules) or _kind(pod) or _owner(pod, rules) or _priority(pod, rules) or _storage(pod, rules)


def _selection(pod: Pod, rules: MigrationArgs) -> str:
    namespace = pod.metadata.namespace
    if rules.include and namespace not in rules.include:
        return f"its namespace {namespace} is not in namespaces.include"
    if namespace in rules.exclude:
        return f"its namespace {namespace} is in namespaces.exclude"
    if rules.label_selector is not None and not meets(rules.label_selector, pod.metadata.labels or {}):
        return "labelSelector does not select it"
    if cost(pod, EVICTION_COST) == NEVER:
        return f"its annotation {EVICTION_COST} is {NEVER}"
    return ""


def _kind(pod: Pod) -> str:
    return "a DaemonSet owns it" if is_of_daemon_set(pod) else leaving_is_senseless(pod)


def is_of_daemon_set(pod: Pod) -> bool:
    """Reports whether a DaemonSet owns a pod."""
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def leaving_is_senseless(pod: Pod) -> str:
    """Returns why no configuration lets the API move a pod; empty where the API can move it."""
    annotations = pod.metadata.annotations or {}
    if MIRROR in annotations or annotations.get(CONFIG_SOURCE, "api") != "api":
        return "it is a static pod of its node"
    if pod.metadata.deletion_timestamp:
        return "it is terminating"
    return ""


def _owner(pod: Pod, rules: MigrationArgs) -> str:
    if pod.metadata.owner_references or rules.evict_all_bare:
        return ""
    if rules.evict_failed_bare and pod.status.phase == "Failed":
        return ""
    return "it has no owner that would replace it (the argument evictAllBarePods is off)"


def _priority(pod: Pod, rules: MigrationArgs) -> str:
    if rules.evict_system_critical or pod.spec.priority is None:
        return ""
    if pod.spec.priority >= SYSTEM_CRITICAL:
        return "it is system-critical (the argument evictSystemCriticalPods is off)"
    if rules.priority_threshold is not None and pod.spec.priority >= rules.priority_threshold:
        return f"its priority {pod.spec.priority} is not below priorityThreshold {rules.priority_threshold}"
    return ""


def _storage(pod: Pod, rules: MigrationArgs) -> str:
    if not rules.evict_local_storage and pod.spec.local_storage:
        return "it has local storage (the argument evictLocalStoragePods is off)"
    if rules.ignore_pvc and any(volume.persistent_volume_claim for volume in pod.spec.volumes):
        return "it uses a persistent volume claim (the argument ignorePvcPods is on)"
    return ""
