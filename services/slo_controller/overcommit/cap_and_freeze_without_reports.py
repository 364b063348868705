"""Nodes whose reports stopped: silence is not zero, so nothing is removed, nothing new is overcommitted, nobody evicted.

until `degradeTimeMinutes`   the last report stays in force
after it                     min( last amount, requested by the pods that are there ): no pod fits any more
many nodes at once           a fault of this system: the last report stays in force, and no amount rises
"""

from collections.abc import Iterable, Mapping

from services.slo_controller.config.slo_configmap import ActiveConfig
from services.slo_controller.overcommit import batch_resources, mid_resources
from services.slo_controller.overcommit.report_expiry import expires_ns
from services.slo_controller.overcommit.usage_sums import CountedPod
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import SloState
from shared.events import Draft
from shared.events.slo import NodeOvercommitted, OvercommitmentFrozen, OvercommitmentResumed
from shared.kube.instants import SECOND
from shared.kube.quantity import nanos, value

NAMES = (batch_resources.CPU, batch_resources.MEMORY, mid_resources.CPU, mid_resources.MEMORY)
"""In the order of `PodDemand.overcommitted`."""


def requested_amounts(pods: Iterable[CountedPod]) -> dict[str, int]:
    """Sums up the batch and mid resources that pods request, in whole units."""
    totals = [0] * len(NAMES)
    for pod in pods:
        for index, size in enumerate(pod.demand.overcommitted):
            totals[index] += size
    return {name: value(total) for name, total in zip(NAMES, totals, strict=True)}


def at_most(before: NodeOvercommitted | None, limits: Mapping[str, int | None]) -> dict[str, int | None]:
    """Returns the amounts of the last decision, each at most its limit; None without an amount or a limit."""
    amounts: dict[str, int | None] = {}
    for name in NAMES:
        text, limit = before.amounts.get(name) if before else None, limits.get(name)
        amounts[name] = None if text is None or limit is None else min(value(nanos(text)), limit)
    return amounts


def decide_freeze(state: SloState, config: ActiveConfig, settings: SloSettings, now_ns: int) -> list[Draft]:
    """Freezes overcommitment when a share of the overcommitted nodes is silent, and resumes it below half of that.

    A node is silent when its report is older than `silent_after_s`, or has expired.
    """
    silent = nodes = 0
    for name in state.decided:
        node = state.nodes.get(name)
        if node is None:
            continue
        report, _ = state.usage_report(name)
        if not report.at_ns:
            continue
        nodes += 1
        limit_ns = min(
            expires_ns(report, config.strategy(node.metadata)), report.at_ns + int(settings.silent_after_s * SECOND)
        )
        silent += limit_ns < now_ns
    share = 100 * silent
    if state.frozen:
        return (
            []
            if share * 2 >= settings.outage_percent * nodes and silent
            else [Draft(OvercommitmentResumed(silent, nodes))]
        )
    if silent >= settings.outage_min_nodes and share >= settings.outage_percent * nodes:
        return [Draft(OvercommitmentFrozen(silent, nodes))]
    return []
