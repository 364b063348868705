"""RemoveFailedPods: pods in phase Failed are removed once they are old enough.

Source: spec/descheduler.md 1.8.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.plugins.pod_life_time import ExitCode, Seconds
from services.descheduler.plugins.pod_policies import CommonDocument, PolicyPods, policy_pods
from services.descheduler.plugins.pod_status_facts import age_s, containers, exit_code, has_owner_of
from shared.domain.component_config import converted
from shared.kube.pod import Pod


class _Document(CommonDocument):
    min_pod_lifetime_seconds: Seconds = 3600
    reasons: list[str] = field(default_factory=list)
    exit_codes: list[ExitCode] = field(default_factory=list)
    exclude_owner_kinds: list[str] = field(default_factory=list)
    including_init_containers: bool = False


class FailedPodArgs(NamedTuple):
    """The arguments.

    Attributes:
        least_age_s: pods that are younger stay.
        reasons, exit_codes: a pod has one of each; empty for any.
        init: init containers count as well.
    """

    pods: PolicyPods
    least_age_s: int
    reasons: frozenset[str]
    exit_codes: frozenset[int]
    excluded_kinds: frozenset[str]
    init: bool


def read_args(plain: Mapping[str, Any], path: str) -> FailedPodArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    return FailedPodArgs(
        pods=policy_pods(given, path),
        least_age_s=given.min_pod_lifetime_seconds,
        reasons=frozenset(given.reasons),
        exit_codes=frozenset(given.exit_codes),
        excluded_kinds=frozenset(given.exclude_owner_kinds),
        init=given.including_init_containers,
    )


def failed_pods(context: CycleContext) -> Findings:
    """Chooses the failed pods that match."""
    args: FailedPodArgs = context.args
    for node in context.nodes:
        for pod in context.ended_on(node.name):
            if args.pods.allows(pod) and _matches(pod.pod, args, context.now_ns) and context.evictor.filter(pod):
                reasons = ", ".join(dict.fromkeys(_reasons(pod.pod, init=args.init)))
                context.evictor.evict(pod, node.name, f"it has failed ({reasons})" if reasons else "it has failed")
    return Findings()


def _matches(pod: Pod, args: FailedPodArgs, now_ns: int) -> bool:
    age = age_s(pod, now_ns)
    if pod.status.phase != "Failed" or age is None or age < args.least_age_s or has_owner_of(pod, args.excluded_kinds):
        return False
    if args.reasons and args.reasons.isdisjoint(_reasons(pod, init=args.init)):
        return False
    return not args.exit_codes or exit_code(pod, args.exit_codes, init=args.init) is not None


def _reasons(pod: Pod, *, init: bool) -> Iterator[str]:
    """Yields the reason of a pod's status, and those for which its containers wait or have ended."""
    texts = [pod.status.reason]
    texts += [text for each in containers(pod, init=init) for text in (each.waiting, each.terminated)]
    return filter(None, texts)
