"""Texts in strategies of which only some are known: names of policies, types and classes.

The API server refuses a NodeSLO with another one, so that none of the node's strategies would change; the kernel
features of `policies` would be off. Others count as the default, as upstream.

Source: spec/api.md 1.2, 1.3, 5.5; upstream apis/slo/v1alpha1, apis/extension.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from shared.admission.slo_config.strategy_bounds import fields_of
from shared.domain.priority import Priority
from shared.domain.qos import QoS
from shared.kube.slo_config import (
    Block,
    CgroupPath,
    ColocationStrategy,
    CpuBurst,
    HostApplication,
    InterferenceStrategy,
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
    InterferenceStrategy: {"answer": ("hint", "migrate", "none", "suppress")},
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


class UnknownWord(NamedTuple):
    """A text that is none of the known ones: where it is, what it is, and what to do."""

    path: str
    found: str
    remedy: str


def unknown_word(part: Part) -> tuple[str, str] | None:
    """Returns the first text that must not be: (path, what to do); None without one."""
    word = next(unknown_words(part, REFUSED), None)
    return word and (word.path, f"{word.found}; {word.remedy}")


def unknown_words(part: Part, known: Words) -> Iterator[UnknownWord]:
    """Yields the unknown texts in a part and the parts in it. Empty texts are left out."""
    words = next((known[base] for base in type(part).__mro__ if base in known), {})
    fields = fields_of(part)
    for name, texts in words.items():
        if (found := fields[name]) and found not in texts:
            yield UnknownWord(name, f"is {found!r}", f"give {'one of ' if len(texts) > 1 else ''}{', '.join(texts)}")
    for name, value in fields.items():
        for place, inner in _parts_in(name, value):
            for word in unknown_words(inner, known):
                yield word._replace(path=f"{place}.{word.path}")


def _parts_in(name: str, value: object) -> Iterator[tuple[str, Part]]:
    if isinstance(value, Part):
        yield name, value
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            if isinstance(each, Part):
                yield f"{name}[{index}]", each
