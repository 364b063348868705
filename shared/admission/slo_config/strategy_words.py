"""Texts in strategies of which only some are known: names of policies, types and classes.

The API server refuses a NodeSLO with another one, so that none of the node's strategies would change; the kernel
features of `policies` would be off. Others count as the default, as upstream.

Source: spec/api.md 1.2, 1.3, 5.5; upstream apis/slo/v1alpha1, apis/extension.
"""

from collections.abc import Iterator, Mapping

from shared.admission.slo_config.strategy_bounds import fields_of
from shared.domain.priority import Priority
from shared.domain.qos import QoS
from shared.kube.slo_config import (
    Block,
    CgroupPath,
    ColocationStrategy,
    CpuBurst,
    HostApplication,
    Part,
    QosPolicies,
    ResourceThreshold,
)

Words = Mapping[type[Part], Mapping[str, tuple[str, ...]]]

COLLECT_POLICIES = ("usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache")
"""The first one is the default."""

REFUSED: Words = {
    ResourceThreshold: {
        "cpuSuppressPolicy": ("cfsQuota", "cpuset"),
        "cpuEvictPolicy": ("evictByAllocatable", "evictByRealLimit"),
    },
    QosPolicies: {"cpuPolicy": ("coreSched", "groupIdentity"), "netQOSPolicy": ("tc", "terway-qos")},
    CpuBurst: {"policy": ("auto", "cfsQuotaBurstOnly", "cpuBurstOnly", "none")},
    Block: {"type": ("device", "podvolume", "volumegroup")},
    CgroupPath: {"base": ("CgroupRoot", "Kubepods", "KubepodsBesteffort", "KubepodsBurstable")},
}
"""Type -> field -> the known texts. k8s/crds has the same where it has an enumeration."""

DEFAULTED: Words = {
    ColocationStrategy: {
        "cpuCalculatePolicy": ("maxUsageRequest", "usage"),
        "memoryCalculatePolicy": ("maxUsageRequest", "request", "usage"),
        "midReclaimMode": ("static",),
        "metricMemoryCollectPolicy": COLLECT_POLICIES,
    },
    HostApplication: {
        "priority": tuple(each.value for each in Priority if each),
        "qos": tuple(each.value for each in QoS if each),
    },
}
"""Type -> field -> the known texts; another one counts as the default."""


def unknown_word(part: Part) -> tuple[str, str] | None:
    """Returns the first text that must not be: (path, what to do); None without one."""
    return next(unknown_words(part, REFUSED), None)


def unknown_words(part: Part, known: Words) -> Iterator[tuple[str, str]]:
    """Yields the unknown texts in a part and the parts in it: (path, what to do). Empty texts are left out."""
    words = next((known[base] for base in type(part).__mro__ if base in known), {})
    fields = fields_of(part)
    for name, texts in words.items():
        if (found := fields[name]) and found not in texts:
            yield name, f"is {found!r}; give {'one of ' if len(texts) > 1 else ''}{', '.join(texts)}"
    for name, value in fields.items():
        for place, inner in _parts_in(name, value):
            for path, text in unknown_words(inner, known):
                yield f"{place}.{path}", text


def _parts_in(name: str, value: object) -> Iterator[tuple[str, Part]]:
    if isinstance(value, Part):
        yield name, value
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            if isinstance(each, Part):
                yield f"{name}[{index}]", each
