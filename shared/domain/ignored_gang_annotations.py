"""Settings of a gang that are ignored since they cannot be read: `shared/domain/gang.py` takes the default instead.

A misspelt `groups` lets a group of gangs fall apart into gangs that are placed separately, so the fault has to be seen.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shared.domain.gang import (
    ANNOTATIONS,
    FAILURE_POLICIES,
    FAILURE_POLICY,
    GROUPS,
    LABELS,
    LIGHTWEIGHT_MINIMUM,
    MATCH_POLICIES,
    MATCH_POLICY,
    MATCH_POLICY_ALIAS,
    MINIMUM,
    MODE,
    MODES,
    POD_GROUP_LABEL,
    TOPOLOGY,
    TOTAL,
    WAITING_TIME,
    Texts,
    read_count,
    read_groups,
)
from shared.domain.network_topology import INDEX, STRATEGIES, topology_fault
from shared.kube.instants import BadTime, duration_ns

_PREFIXES = ("gang.scheduling.koordinator.sh/", f"{POD_GROUP_LABEL}/")
_LABELS = (*LABELS, LIGHTWEIGHT_MINIMUM)
_ANNOTATIONS = (*ANNOTATIONS, INDEX, "gang.scheduling.koordinator.sh/timeout")
"""Names of these prefixes that are read, from a pod or a PodGroup; the last one is written by upstream."""


def ignored_of_pod_group(pod_group: Mapping[str, Any]) -> Iterator[str]:
    """Yields what of a PodGroup has no effect, each with what is in force instead."""
    metadata, spec = pod_group.get("metadata"), pod_group.get("spec")
    minimum = spec.get("minMember") if isinstance(spec, Mapping) else None
    if isinstance(minimum, int) and minimum < 1:
        yield f"spec.minMember is {minimum}: no pod waits for others; a gang has a minimum of at least 1"
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    yield from unknown_gang_settings({}, annotations or {})
    yield from _ignored(annotations or {})


def unknown_gang_settings(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[str]:
    """Yields the labels and annotations of the gangs' prefixes that nothing reads, with the one that is probably meant: a
    misspelt name leaves a gang without its minimum, or without its group.
    """
    for kind, found, known in (("label", labels, _LABELS), ("annotation", annotations, _ANNOTATIONS)):
        for name in sorted(found):
            if name.startswith(_PREFIXES) and name not in known:
                from shared.closest_name import did_you_mean  # only here: it takes a tenth of a command's start

                yield f"{kind} {name} is unknown, and has no effect{did_you_mean(name, known)}"


def ignored_of_pod(labels: Texts, annotations: Texts) -> Iterator[str]:
    """Yields the labels and annotations of a pod that are ignored, where its gang has no PodGroup."""
    given, label = annotations or {}, (labels or {}).get(LIGHTWEIGHT_MINIMUM)
    if label and read_count(label) is None:
        yield f"label {LIGHTWEIGHT_MINIMUM} is {label!r}, which is no number: the pod gives its gang no minimum"
    elif not label and (text := given.get(MINIMUM)) and read_count(text) is None:
        yield f"annotation {MINIMUM} is {text!r}, which is no number: the pod gives its gang no minimum"
    if text := given.get(WAITING_TIME):
        try:
            duration_ns(text)
        except BadTime as error:
            yield f"annotation {WAITING_TIME}: {error}; the configured time counts"
    yield from unknown_gang_settings(labels or {}, given)
    yield from _ignored(given)


def _ignored(annotations: Mapping[str, str]) -> Iterator[str]:
    if (text := annotations.get(TOTAL)) and read_count(text) is None:
        yield f"annotation {TOTAL} is {text!r}, which is no number: the minimum counts"
    yield from _none_of(annotations, MODE, MODES, "the gang is Strict")
    named = MATCH_POLICY if annotations.get(MATCH_POLICY) else MATCH_POLICY_ALIAS
    yield from _none_of(annotations, named, MATCH_POLICIES, "the configured one counts")
    yield from _none_of(annotations, FAILURE_POLICY, FAILURE_POLICIES, "that of its group counts, else Continue")
    if (text := annotations.get(GROUPS)) and read_groups(text) is None:
        example = '["namespace/name", "namespace/other"]'
        yield f"annotation {GROUPS} is {text!r}: the gang is placed without others; write a list such as {example}"
    if fault := topology_fault(annotations.get(TOPOLOGY, "")):
        yield f"annotation {TOPOLOGY}: {fault}; strategies are {' and '.join(STRATEGIES)}"


def _none_of(annotations: Mapping[str, str], name: str, known: Iterable[str], instead: str) -> Iterator[str]:
    text = annotations.get(name)
    if text and text not in known:
        yield f"annotation {name} is {text!r}, which is none of {', '.join(known)}: {instead}"
