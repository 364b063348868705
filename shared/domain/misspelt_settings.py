"""Labels and annotations of koordinator.sh that nothing reads, and whose name is close to one that is read.

A misspelt `qosClass` lets a pod share CPUs that it should have for itself, so the fault has to be seen. A name that is
close to no known one is the owner's own matter.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

NAMES: dict[str, tuple[str, ...]] = {
    "config.koordinator.sh": ("colocation-profiles", "skip-update-resources"),
    "descheduler.koordinator.sh": ("drain", "migration-job", "passed-arbitration"),
    "internal.scheduling.koordinator.sh": ("bind-gang-group-id", "bind-gang-member-count", "scheduling-hint"),
    "koordinator.sh": (
        "allow-negative-oom-score-adj",
        "blkioQOS",
        "configmap-type",
        "core-sched-group-id",
        "core-sched-policy",
        "cpuBurst",
        "cpuQOS",
        "evict-policy",
        "evict-reason",
        "evict-trigger",
        "eviction-enabled",
        "eviction-policy",
        "eviction-priority",
        "job-created-by",
        "memoryQOS",
        "networkQOS",
        "oom-score-adj",
        "oom-score-adj-spec",
        "priority",
        "priority-class",
        "qosClass",
    ),
    "kubelet.koordinator.sh": ("cpu-manager-policy",),
    "node.koordinator.sh": (
        "be-cpu-shared-pools",
        "colocation-strategy",
        "cpu-basic-info",
        "cpu-bind-policy",
        "cpu-normalization-enabled",
        "cpu-normalization-ratio",
        "cpu-reclaim-ratio",
        "cpu-shared-pools",
        "cpu-topology",
        "enable-numa-reservation",
        "extended-resource-spec",
        "gpu-driver-version",
        "gpu-mig-devices",
        "gpu-model",
        "gpu-partition-policy",
        "gpu-vendor",
        "gpu-virtualization",
        "memory-reclaim-ratio",
        "mid-static-cpu-reserved-ratio",
        "mid-static-memory-reserved-ratio",
        "network-bandwidth",
        "numa-allocate-strategy",
        "numa-topology-policy",
        "originExtendedAllocatable",
        "pod-cpu-allocs",
        "raw-allocatable",
        "interfered",
        "reports-missing",
        "resctrl",
        "reservation",
        "resource-amplification-ratio",
        "secondary-device-well-planned",
        "system-qos-resource",
        "thirdPartyAllocations",
    ),
    "pod.koordinator.sh": ("is-pre-allocatable", "pre-allocatable-priority", "skip-enhanced-validation"),
    "quota.scheduling.koordinator.sh": (
        "admission",
        "allocated",
        "allow-force-update",
        "allow-lent-resource",
        "child-request",
        "guaranteed",
        "ignore-default-tree",
        "is-parent",
        "is-root",
        "max-strict-check-resource-keys",
        "name",
        "namespaces",
        "non-preemptible-request",
        "non-preemptible-used",
        "parent",
        "preemptible",
        "profile",
        "request",
        "resource-keys",
        "runtime",
        "shared-weight",
        "total-resource",
        "tree-id",
        "unschedulable-resource",
    ),
    "runtimeproxy.koordinator.sh": ("skip-hookserver",),
    "scheduling.koordinator.sh": (
        "bind-gang-group-id",
        "bind-gang-member-count",
        "bind-timestamp",
        "device-allocate-hint",
        "device-allocated",
        "device-joint-allocate",
        "disable-preemptible",
        "eviction-cost",
        "exact-match-reservation",
        "gpu-minors",
        "gpu-partition-spec",
        "gpu-partitions",
        "load-estimated-scaling-factors",
        "load-estimated-seconds-after-initialized",
        "load-estimated-seconds-after-pod-scheduled",
        "network-topology-selector",
        "numa-topology-spec",
        "operating-mode",
        "pre-allocation-required",
        "questioned-object-key",
        "reservation-affinity",
        "reservation-allocated",
        "reservation-current-owner",
        "reservation-ignored",
        "reservation-order",
        "reservation-owners",
        "reservation-resize-allocatable",
        "reservation-restricted-options",
        "reserve-pod",
        "resource-spec",
        "resource-status",
        "scheduler-name",
        "scheduling-hint",
        "soft-eviction",
        "usage-thresholds",
    ),
}
"""Domain -> names below it, of all kinds of objects. docs/security.md lists the same, and those of gangs."""

_DOMAIN = "koordinator.sh"
_OF_GANGS = "gang.scheduling.koordinator.sh"
"""Its names are compared by `shared.domain.ignored_gang_annotations`."""
_KNOWN = frozenset(f"{domain}/{name}" for domain, names in NAMES.items() for name in names)
_MOST = 16
"""Unknown names of an object that are compared: a tenant may write ten thousand, and each takes a quarter of a
millisecond."""
_LONGEST = 128
"""Characters of a name; a longer one is close to none."""


def misspelt_settings(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> Iterator[str]:
    """Yields a sentence about each, with the name that is probably meant."""
    for kind, found in (("label", labels), ("annotation", annotations)):
        for name in misspelt_names(found):
            yield f"{kind} {name} is unknown, and has no effect; perhaps {meant_by(name)!r} is meant"


def misspelt_names(names: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the misspelt ones among the first `_MOST` that are unknown, in order."""
    unknown = [name for name in names or () if name not in _KNOWN and _is_ours(name)]
    return tuple(name for name in sorted(unknown)[:_MOST] if meant_by(name)) if unknown else ()


def _is_ours(name: str) -> bool:
    domain, _, _ = name.rpartition("/")
    return (domain == _DOMAIN or domain.endswith(f".{_DOMAIN}")) and domain != _OF_GANGS and len(name) <= _LONGEST


@lru_cache(maxsize=4096)
def meant_by(name: str) -> str:
    """Returns the known label or annotation that is probably meant by an unknown one; empty for any other name."""
    if name in _KNOWN or not _is_ours(name):
        return ""
    from shared.closest_name import closest  # only here: it takes a tenth of a command's start

    domain, _, own = name.rpartition("/")
    if meant := closest(own, NAMES.get(domain, ())):
        return f"{domain}/{meant}"
    return next((f"{other}/{own}" for other, names in NAMES.items() if own in names), "")
