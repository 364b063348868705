"""PodLifeTime: pods leave that are old, in a state, in a condition for long, or that have ended with an exit code.

A pod matches where every criterion that is given matches; within a criterion that is a list, one entry is enough.
Pods that have ended are removed.

Source: spec/descheduler.md 1.8.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.load_aware.measured_node import PodOnNode
from services.descheduler.load_aware.pod_order import age_key
from services.descheduler.plugins.pod_policies import CommonDocument, PolicyPods, policy_pods
from services.descheduler.plugins.pod_status_facts import age_s, containers, elapsed_s, exit_code, has_owner_of
from shared.domain.component_config import BadConfig, Strict, check_one_of, converted
from shared.kube.pod import Pod, PodCondition

STATES = (
    # Phases, and the reasons of a pod's status.
    "Running", "Pending", "Succeeded", "Failed", "Unknown",
    "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError",
    # Reasons for which a container waits.
    "PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff", "CreateContainerConfigError",
    "ErrImagePull", "CreateContainerError", "InvalidImageName",
    # Reasons for which a container has ended.
    "OOMKilled", "Error", "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError",
)  # fmt: skip

Seconds = Annotated[int, Meta(ge=0)]
ExitCode = Annotated[int, Meta(ge=-(2**31), lt=2**31)]


class ConditionDocument(Strict):
    """A condition of a pod; what is not given is not compared."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: Seconds | None = None


class OwnerKindsDocument(Strict):
    """Kinds of owners whose pods count, or do not."""

    include: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)


class _Document(CommonDocument):
    max_pod_life_time_seconds: Seconds | None = None
    states: list[str] = field(default_factory=list)
    conditions: list[ConditionDocument] = field(default_factory=list)
    exit_codes: list[ExitCode] = field(default_factory=list)
    owner_kinds: OwnerKindsDocument | None = None
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False


class LifeTimeArgs(NamedTuple):
    """The arguments.

    Attributes:
        longest_s: a pod matches that is older; None: any age does.
        included_kinds, excluded_kinds: of owners; empty where not given.
        init, ephemeral: these containers count as well.
    """

    pods: PolicyPods
    longest_s: int | None
    states: frozenset[str]
    conditions: tuple[ConditionDocument, ...]
    exit_codes: frozenset[int]
    included_kinds: frozenset[str]
    excluded_kinds: frozenset[str]
    init: bool
    ephemeral: bool


def read_args(plain: Mapping[str, Any], path: str) -> LifeTimeArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value, or there is no criterion.
    """
    given = converted(dict(plain), _Document, path)
    kinds = given.owner_kinds or OwnerKindsDocument()
    if kinds.include and kinds.exclude:
        raise BadConfig(f"{path}.ownerKinds", "has include and exclude; give one of them")
    for number, state in enumerate(given.states):
        check_one_of(state, STATES, f"{path}.states[{number}]")
    for number, each in enumerate(given.conditions):
        if each == ConditionDocument():
            fields = "type, status, reason or minTimeSinceLastTransitionSeconds"
            raise BadConfig(f"{path}.conditions[{number}]", f"empty; give at least one of {fields}")
    if given.max_pod_life_time_seconds is None and not (given.states or given.conditions or given.exit_codes):
        raise BadConfig(path, "no criterion; give at least one of maxPodLifeTimeSeconds, states, conditions, exitCodes")
    return LifeTimeArgs(
        pods=policy_pods(given, path),
        longest_s=given.max_pod_life_time_seconds,
        states=frozenset(given.states),
        conditions=tuple(given.conditions),
        exit_codes=frozenset(given.exit_codes),
        included_kinds=frozenset(kinds.include),
        excluded_kinds=frozenset(kinds.exclude),
        init=given.including_init_containers,
        ephemeral=given.including_ephemeral_containers,
    )


def pod_life_time(context: CycleContext) -> Findings:
    """Chooses the pods that match all criteria, the oldest first."""
    args: LifeTimeArgs = context.args
    found: list[tuple[PodOnNode, str]] = []
    for node in context.nodes:
        for pod in (*node.pods, *context.ended_on(node.name)):
            if args.pods.allows(pod) and _is_of_owner(pod.pod, args):
                matches = list(_matches(pod.pod, args, context.now_ns))
                if all(matches):
                    found.append((pod, ", ".join(matches)))
    found.sort(key=lambda each: (-age_key(each[0].pod), each[0].key))
    for pod, reason in found:
        if context.evictor.filter(pod):
            context.evictor.evict(pod, pod.pod.spec.node_name, reason)
    return Findings()


def _is_of_owner(pod: Pod, args: LifeTimeArgs) -> bool:
    if args.included_kinds:
        return has_owner_of(pod, args.included_kinds)
    return not has_owner_of(pod, args.excluded_kinds)


def _matches(pod: Pod, args: LifeTimeArgs, now_ns: int) -> Iterator[str]:
    """Yields how a pod meets each criterion that is given; empty text for one that it does not meet."""
    if args.longest_s is not None:
        age = age_s(pod, now_ns)
        yield f"it is {age} s old, longer than {args.longest_s} s" if age is not None and age > args.longest_s else ""
    if args.states:
        state = next((each for each in _states(pod, args) if each in args.states), "")
        yield f"its state is {state}" if state else ""
    if args.conditions:
        yield next((text for each in args.conditions if (text := _meets(pod, each, now_ns))), "")
    if args.exit_codes:
        code = exit_code(pod, args.exit_codes, init=args.init)
        yield "" if code is None else f"a container has ended with exit code {code}"


def _states(pod: Pod, args: LifeTimeArgs) -> Iterator[str]:
    yield from (pod.status.phase, pod.status.reason)
    for each in containers(pod, init=args.init, ephemeral=args.ephemeral):
        yield from (each.waiting, each.terminated)


def _meets(pod: Pod, expected: ConditionDocument, now_ns: int) -> str:
    """Returns the first condition of a pod that is as expected, in words; empty without any."""
    for each in pod.status.conditions:
        if _has_fields(each, expected):
            least_s = expected.min_time_since_last_transition_seconds
            since_s = elapsed_s(each.last_transition_time, now_ns)
            if least_s is None or (since_s is not None and since_s >= least_s):
                since = f" since {since_s} s" if since_s is not None else ""
                return f"its condition {each.type} is {each.status}{since}"
    return ""


def _has_fields(found: PodCondition, expected: ConditionDocument) -> bool:
    pairs = ((expected.type, found.type), (expected.status, found.status), (expected.reason, found.reason))
    return all(each in ("", is_) for each, is_ in pairs)
