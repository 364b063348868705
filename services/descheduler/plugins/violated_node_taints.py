"""RemovePodsViolatingNodeTaints: pods leave nodes with a taint that they do not tolerate.

NoExecute taints are left to the node lifecycle controller of Kubernetes, which evicts for them itself.

Source: spec/descheduler.md 1.8.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.plugins.pod_policies import CommonDocument, PolicyPods, policy_pods
from shared.domain.component_config import converted
from shared.domain.tolerations import tolerates
from shared.kube.node import Taint


class _Document(CommonDocument):
    include_prefer_no_schedule: bool = False
    excluded_taints: list[str] = field(default_factory=list)
    included_taints: list[str] = field(default_factory=list)


class TaintArgs(NamedTuple):
    """The arguments.

    Attributes:
        effects: of the taints that count.
        excluded, included: `key` or `key=value`; exclusion comes first, and nothing included stands for all.
    """

    pods: PolicyPods
    effects: tuple[str, ...]
    excluded: frozenset[str]
    included: frozenset[str]


def read_args(plain: Mapping[str, Any], path: str) -> TaintArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    effects = ("NoSchedule", "PreferNoSchedule") if given.include_prefer_no_schedule else ("NoSchedule",)
    return TaintArgs(
        policy_pods(given, path), effects, frozenset(given.excluded_taints), frozenset(given.included_taints)
    )


def violated_node_taints(context: CycleContext) -> Findings:
    """Chooses the pods that do not tolerate a taint of their node."""
    args: TaintArgs = context.args
    for node in context.nodes:
        counted = [taint for taint in node.node.spec.taints if _counts(args, taint)]
        for pod in node.pods if counted else ():
            tolerations = pod.pod.spec.tolerations
            bad = next((t for t in counted if not any(tolerates(each, t) for each in tolerations)), None)
            if bad is not None and args.pods.allows(pod) and context.evictor.filter(pod):
                context.evictor.evict(pod, node.name, f"it does not tolerate taint {_text(bad)}:{bad.effect}")
    return Findings()


def _counts(args: TaintArgs, taint: Taint) -> bool:
    if taint.effect not in args.effects or _is_listed(taint, args.excluded):
        return False
    return not args.included or _is_listed(taint, args.included)


def _is_listed(taint: Taint, listed: Iterable[str]) -> bool:
    return taint.key in listed or f"{taint.key}={taint.value}" in listed


def _text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}" if taint.value else taint.key
