"""Which units wait for capacity that moves could free: gangs, and pods with devices; and the arguments that choose them.

A rule of this system; upstream has none. Source: spec/scheduler-workloads.md 2.1, 3.2.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, field

from services.descheduler.load_aware.measured_node import PodOnNode
from services.descheduler.plugins.pod_policies import CommonDocument, PolicyPods, policy_pods
from services.descheduler.plugins.pod_status_facts import age_s
from services.descheduler.state.measured_nodes import pod_on_node
from shared.domain.component_config import BadConfig, check_one_of, converted
from shared.domain.device_requests import TYPE_OF
from shared.kube.pod import Pod

GANG, DEVICE_POD = "Gang", "DevicePod"
UNIT_KINDS = (GANG, DEVICE_POD)


class _Document(CommonDocument):
    min_wait_seconds: Annotated[int, Meta(ge=1)] = 300
    max_moves: Annotated[int, Meta(ge=1, le=64)] = 4
    admit_within_seconds: Annotated[int, Meta(ge=1, le=3_600)] = 120
    retry_after_seconds: Annotated[int, Meta(ge=1, le=21_600)] = 1_800
    kinds: list[str] = field(default_factory=lambda: list(UNIT_KINDS))
    paused: bool = False
    dry_run: bool = False


class DefragmentArgs(NamedTuple):
    """The arguments.

    Attributes:
        min_wait_s: a unit that waits for less is none yet.
        most_moves: of one case.
        admit_within_s: after the moves; a unit that waits longer was not admitted by them.
        retry_after_s: until pods leave once more for a unit that was not admitted.
        kinds: of `UNIT_KINDS`.
        pods: the waiting pods that count; all members of a gang are, or the gang is not.
    """

    min_wait_s: int
    most_moves: int
    admit_within_s: int
    retry_after_s: int
    kinds: frozenset[str]
    pods: PolicyPods
    paused: bool
    dry_run: bool


class UnitThatWaits(NamedTuple):
    """A gang or a pod that waits.

    Attributes:
        name: `namespace/name`.
        wait_s: since its oldest waiting pod was created.
        pods: uids of its waiting pods, by name.
    """

    name: str
    kind: str
    wait_s: int
    pods: tuple[str, ...]


def named_unit(kind: str, name: str) -> str:
    """Returns how texts name a unit."""
    return f"{'gang' if kind == GANG else 'pod'} {name}"


def read_args(plain: Mapping[str, Any], path: str) -> DefragmentArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    if not given.kinds or len(set(given.kinds)) < len(given.kinds):
        raise BadConfig(f"{path}.kinds", f"{given.kinds!r}; give at least one, each once")
    for number, kind in enumerate(given.kinds):
        check_one_of(kind, UNIT_KINDS, f"{path}.kinds[{number}]")
    return DefragmentArgs(
        min_wait_s=given.min_wait_seconds,
        most_moves=given.max_moves,
        admit_within_s=given.admit_within_seconds,
        retry_after_s=given.retry_after_seconds,
        kinds=frozenset(given.kinds),
        pods=policy_pods(given, path),
        paused=given.paused,
        dry_run=given.dry_run,
    )


def waiting_units(pods: Iterable[Pod], args: DefragmentArgs, now_ns: int) -> list[UnitThatWaits]:
    """Returns the units that wait for long enough, the longest-waiting first, then by name.

    A pod that has a scheduling gate, ends, or has a creation time that cannot be read does not wait.
    """
    found: dict[tuple[str, str], list[tuple[PodOnNode, int]]] = {}
    for pod in pods:
        if not _waits(pod) or (wait_s := age_s(pod, now_ns)) is None:
            continue
        seen = pod_on_node(pod)
        if seen.gang:
            key = (seen.gang, GANG)
        elif any(amount > 0 and name in TYPE_OF for name, amount in seen.requests.items()):
            key = (seen.key, DEVICE_POD)
        else:
            continue
        found.setdefault(key, []).append((seen, wait_s))
    units = []
    for (name, kind), members in found.items():
        longest_s = max(wait_s for _, wait_s in members)
        if kind in args.kinds and longest_s >= args.min_wait_s and all(args.pods.allows(pod) for pod, _ in members):
            uids = tuple(pod.pod.metadata.uid for pod, _ in sorted(members, key=lambda each: each[0].key))
            units.append(UnitThatWaits(name, kind, longest_s, uids))
    return sorted(units, key=lambda unit: (-unit.wait_s, unit.name))


def _waits(pod: Pod) -> bool:
    """Reports whether a pod waits for a node, and for nothing else."""
    return not (
        pod.spec.node_name or pod.spec.scheduling_gates or pod.has_ended or pod.metadata.deletion_timestamp is not None
    )
