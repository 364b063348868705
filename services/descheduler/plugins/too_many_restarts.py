"""RemovePodsHavingTooManyRestarts: pods leave a node on which their containers are restarted again and again.

Source: spec/descheduler.md 1.8.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.plugins.pod_policies import CommonDocument, PolicyPods, policy_pods
from services.descheduler.plugins.pod_status_facts import containers, restarts
from shared.domain.component_config import BadConfig, check_one_of, converted
from shared.kube.pod import Pod

STATES = ("Running", "CrashLoopBackOff")


class _Document(CommonDocument):
    pod_restart_threshold: Annotated[int, Meta(ge=1)] | None = None
    including_init_containers: bool = False
    states: list[str] = field(default_factory=list)


class RestartArgs(NamedTuple):
    """The arguments.

    Attributes:
        threshold: pods with as many restarts or more leave.
        states: a pod's phase, or the reason for which a container of it waits, is one of them; empty for any.
        init: init containers count as well.
    """

    pods: PolicyPods
    threshold: int
    states: frozenset[str]
    init: bool


def read_args(plain: Mapping[str, Any], path: str) -> RestartArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value, or there is no threshold.
    """
    given = converted(dict(plain), _Document, path)
    if given.pod_restart_threshold is None:
        raise BadConfig(f"{path}.podRestartThreshold", "absent; give 1 or more restarts")
    for number, state in enumerate(given.states):
        check_one_of(state, STATES, f"{path}.states[{number}]")
    return RestartArgs(
        policy_pods(given, path),
        given.pod_restart_threshold,
        frozenset(given.states),
        given.including_init_containers,
    )


def too_many_restarts(context: CycleContext) -> Findings:
    """Chooses the pods whose containers were restarted too often, on each node those with most restarts first."""
    args: RestartArgs = context.args
    for node in context.nodes:
        counted = [(restarts(pod.pod, init=args.init), pod) for pod in node.pods if args.pods.allows(pod)]
        for count, pod in sorted(counted, key=lambda each: -each[0]):
            if count >= args.threshold and _is_in_state(pod.pod, args) and context.evictor.filter(pod):
                context.evictor.evict(pod, node.name, f"{count} restarts, at least {args.threshold}")
    return Findings()


def _is_in_state(pod: Pod, args: RestartArgs) -> bool:
    if not args.states or pod.status.phase in args.states:
        return True
    return any(each.waiting in args.states for each in containers(pod, init=args.init))
