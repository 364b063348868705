"""Requests of high-priority pods that came to a node after its newest usage report.

Nothing measures such a pod before the next report, so its request counts at once. The margin of the node absorbs the
first of them, so that the start of an ordinary pod leaves batch resources as they are; the rest is subtracted:

    subtracted = max( requested by newer pods - returned by pods that ended since - max(margin, 0), 0 )

With it, usage + requests of newer pods + batch resources never exceed the capacity.
"""

from collections.abc import Iterable

from services.slo_controller.overcommit.usage_sums import LOW, CountedPod
from services.slo_controller.state.usage_report import UsageReport
from shared.domain.cpu_memory import ZERO, Amount


def unreported_requests(newer: Iterable[CountedPod], ended: Iterable[CountedPod], report: UsageReport) -> Amount:
    """Sums up the requests of newer high-priority pods, less what pods that ended since the report return.

    A pod that ended returns the smaller of its request and its usage, which every policy counted at least. A newer pod
    that the report has under its name (clocks differ) counts with the part of its request beyond its usage.

    Args:
        newer: live pods that came to the node after the report.
        ended: pods that were on the node at the time of the report, and have ended.
    """
    counted = [pod for pod in newer if pod.demand.priority not in LOW]
    if not counted:
        return ZERO
    used = report.pods.by_key()
    returned = {}
    for pod in ended:
        if pod.demand.priority not in LOW:
            cpu, memory = pod.demand.request
            found = used.get(pod.key)
            returned[pod.key] = (
                Amount(cpu, memory) if found is None else Amount(min(cpu, found[0]), min(memory, found[1]))
            )
    total = ZERO
    for pod in counted:
        request = pod.demand.request
        found = used.get(pod.key) if pod.key not in returned else None
        total = total.plus(request if found is None else request.minus(Amount(found[0], found[1])).not_negative())
    for part in returned.values():
        total = total.minus(part)
    return total.not_negative()


def beyond_margin(unreported: Amount, margin: Amount) -> Amount:
    """Returns the part of the requests that the margin does not absorb; a negative margin absorbs nothing."""
    return unreported.minus(margin.not_negative()).not_negative()
