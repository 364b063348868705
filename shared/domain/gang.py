"""Gangs: the gang of a pod, and the settings of a gang, read from labels, annotations and PodGroups.

A pod names its gang by the label of its PodGroup, by the lightweight labels, or by annotations; the settings come from
the PodGroup, or from the pods themselves. Source: spec/scheduler-workloads.md 2.1; spec/api.md 1.7, 2.2.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shared.kube.instants import SECOND, BadTime, duration_ns
from shared.kube.meta import Metadata

POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
LIGHTWEIGHT_NAME = f"{POD_GROUP_LABEL}/name"
LIGHTWEIGHT_MINIMUM = f"{POD_GROUP_LABEL}/min-available"
_DOMAIN = "gang.scheduling.koordinator.sh"
NAME = f"{_DOMAIN}/name"
MINIMUM = f"{_DOMAIN}/min-available"
TOTAL = f"{_DOMAIN}/total-number"
MODE = f"{_DOMAIN}/mode"
MATCH_POLICY = f"{_DOMAIN}/match-policy"
MATCH_POLICY_ALIAS = f"{POD_GROUP_LABEL}/match-policy"
WAITING_TIME = f"{_DOMAIN}/waiting-time"
GROUPS = f"{_DOMAIN}/groups"
TOPOLOGY = f"{_DOMAIN}/network-topology-spec"
FAILURE_POLICY = "gang.koordstream/failure-policy"
"""Annotation that decides about the members of a gang when others fail: one of FAILURE_POLICIES. Upstream has none."""

LABELS = (POD_GROUP_LABEL, LIGHTWEIGHT_NAME)
"""Labels of a pod that name its gang."""

ANNOTATIONS = (
    NAME, MINIMUM, TOTAL, MODE, MATCH_POLICY, MATCH_POLICY_ALIAS, WAITING_TIME, GROUPS, TOPOLOGY, FAILURE_POLICY,
)  # fmt: skip
"""Annotations of a pod that name its gang or set it up."""

STRICT = "Strict"
NON_STRICT = "NonStrict"
MODES = (STRICT, NON_STRICT)

ONCE_SATISFIED = "once-satisfied"
ONLY_WAITING = "only-waiting"
WAITING_AND_RUNNING = "waiting-and-running"
MATCH_POLICIES = (ONCE_SATISFIED, ONLY_WAITING, WAITING_AND_RUNNING)

CONTINUE = "Continue"
EVICT = "Evict"
FAILURE_POLICIES = (CONTINUE, EVICT)

BIND_GROUP = (
    "internal.scheduling.koordinator.sh/bind-gang-group-id",
    "scheduling.koordinator.sh/bind-gang-group-id",
)
BIND_COUNT = (
    "internal.scheduling.koordinator.sh/bind-gang-member-count",
    "scheduling.koordinator.sh/bind-gang-member-count",
)
"""Annotations of a member that is bound together with others: the group, and how many they are; the second of each is
deprecated and written as well."""

_INT32 = re.compile(r"[+-]?\d+").fullmatch
_LARGEST = (1 << 31) - 1

Texts = Mapping[str, str] | None


class GangSettings(msgspec.Struct, frozen=True, array_like=True):
    """The settings of a gang.

    Attributes:
        minimum: number of members that are placed together.
        total: number of members as declared, at least the minimum; informational.
        is_strict: what was placed is given up when the minimum cannot be reached.
        match_policy: one of MATCH_POLICIES; empty for the configured default.
        waiting_ns: how long placed members of a NonStrict gang wait for others; 0 for the configured default.
        groups: ids of the gangs that are placed together, sorted; this one alone where none are declared.
        topology: the text of the network topology annotation.
        failure_policy: one of FAILURE_POLICIES; empty where none is declared, for that of its group, else CONTINUE.
    """

    minimum: int
    total: int
    is_strict: bool
    match_policy: str
    waiting_ns: int
    groups: tuple[str, ...]
    topology: str = ""
    failure_policy: str = ""


def gang_of(metadata: Metadata) -> str:
    """Returns the id of a pod's gang, `namespace/name`; empty without one."""
    labels, annotations, name = metadata.labels, metadata.annotations, ""
    if labels:
        name = labels.get(POD_GROUP_LABEL) or labels.get(LIGHTWEIGHT_NAME) or ""
    if not name and annotations:
        name = annotations.get(NAME) or ""
    return f"{metadata.namespace}/{name}" if name else ""


def gangs_that_end_together(gang: str, settings_of: Callable[[str], GangSettings | None]) -> tuple[str, ...]:
    """Returns the ids of the gangs with which a gang ends, its own included: those of its group that name it as well, so
    that nobody ends the gang of another by naming it.

    Args:
        settings_of: the settings in force of a gang; None without any.
    """
    settings = settings_of(gang)
    if settings is None or gang not in settings.groups:
        return (gang,)

    def names(other: str) -> bool:
        theirs = settings_of(other)
        return theirs is not None and gang in theirs.groups

    return tuple(other for other in settings.groups if other == gang or names(other))


def settings_of_pod(gang: str, labels: Texts, annotations: Texts) -> GangSettings | None:
    """Returns the settings that a pod declares for its gang; None where its minimum is missing or unreadable."""
    given = annotations or {}
    text = (labels or {}).get(LIGHTWEIGHT_MINIMUM) or given.get(MINIMUM) or ""
    minimum = read_count(text)
    if minimum is None:
        return None
    try:
        waiting_ns = duration_ns(given.get(WAITING_TIME, ""))
    except BadTime:
        waiting_ns = 0
    return _settings(gang, minimum, given, max(waiting_ns, 0))


def settings_of_pod_group(gang: str, pod_group: Mapping[str, Any]) -> GangSettings | None:
    """Returns the settings of a PodGroup; None where its minimum is unreadable."""
    spec, metadata = pod_group.get("spec"), pod_group.get("metadata")
    spec, metadata = (part if isinstance(part, Mapping) else {} for part in (spec, metadata))
    minimum, seconds = spec.get("minMember", 0), spec.get("scheduleTimeoutSeconds")
    if not isinstance(minimum, int) or isinstance(minimum, bool):
        return None
    waiting_ns = seconds * SECOND if isinstance(seconds, int) and seconds > 0 else 0
    return _settings(gang, minimum, metadata.get("annotations") or {}, waiting_ns)


def _settings(gang: str, minimum: int, annotations: Mapping[str, str], waiting_ns: int) -> GangSettings:
    total = read_count(annotations.get(TOTAL, ""))
    policy = annotations.get(MATCH_POLICY) or annotations.get(MATCH_POLICY_ALIAS) or ""
    on_failure = annotations.get(FAILURE_POLICY, "")
    return GangSettings(
        minimum=minimum,
        total=minimum if total is None else max(total, minimum),
        is_strict=annotations.get(MODE) != NON_STRICT,
        match_policy=policy if policy in MATCH_POLICIES else "",
        waiting_ns=waiting_ns,
        groups=tuple(sorted(read_groups(annotations.get(GROUPS, "")) or ())) or (gang,),
        topology=annotations.get(TOPOLOGY, ""),
        failure_policy=on_failure if on_failure in FAILURE_POLICIES else "",
    )


def read_groups(text: str) -> list[str] | None:
    """Returns the ids of the gangs in the annotation GROUPS; None where it is no such list."""
    try:
        found: list[str] = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return found


def read_count(text: str) -> int | None:
    """Returns a number of pods that a label or annotation has; None where it is no whole number of 32 bits."""
    if not _INT32(text) or len(text) > len(f"-{_LARGEST}"):
        return None
    number = int(text)
    return number if -_LARGEST - 1 <= number <= _LARGEST else None
