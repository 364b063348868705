"""Thresholds: a change of an amount that is large enough to be written, and the age at which a report expires.

Source: spec/slo-controller.md 3.3-3.5; upstream pkg/slo-controller/noderesource/{framework,plugins}.
"""

from collections.abc import Iterable, Mapping

from services.slo_controller.config.colocation_strategy import DEFAULTS
from services.slo_controller.state.usage_report import UsageReport
from shared.kube.instants import SECOND
from shared.kube.quantity import milli
from shared.kube.slo_config import ColocationStrategy, Hysteresis


def any_changed(
    old: Mapping[str, int], new: Mapping[str, int], names: Iterable[str], strategy: ColocationStrategy
) -> bool:
    """Reports whether one of these resources appeared, disappeared, or changed by more than the threshold.

    |new - old| > old * threshold, in thousandths; the threshold is `resourceDiffThreshold`, or the percentage for a
    rise or a fall in `koordstream.hysteresis`.

    Args:
        old, new: resource -> amount in nanos; a resource that is absent has none.
    """
    ratio, limits = strategy.resource_diff_threshold, strategy.koordstream
    threshold = DEFAULTS.resource_diff_threshold or 0.0 if ratio is None else ratio
    hysteresis = limits.hysteresis if limits else None
    for name in names:
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            if before is not after:
                return True
        elif differs(before, after, threshold, hysteresis):
            return True
    return False


def differs(old_nanos: int, new_nanos: int, threshold: float, hysteresis: Hysteresis | None = None) -> bool:
    """Reports whether an amount changed by more than a share of the old one."""
    old, new = milli(old_nanos), milli(new_nanos)
    if hysteresis is not None:
        percent = hysteresis.rise_percent if new > old else hysteresis.fall_percent
        if percent is not None:
            threshold = percent / 100
    return abs(new - old) > float(old) * threshold


def is_degraded(report: UsageReport, strategy: ColocationStrategy, now_ns: int) -> bool:
    """Reports whether the usage report is missing or older than `degradeTimeMinutes`; at exactly that age it counts.

    A report without a part about the node counts as missing; upstream crashes on it.
    """
    return not report.has_node or expires_ns(report, strategy) < now_ns


def expires_ns(report: UsageReport, strategy: ColocationStrategy) -> int:
    """Returns the last instant at which a report counts; 0 without a report."""
    if not report.at_ns:
        return 0
    minutes = strategy.degrade_time_minutes
    return report.at_ns + (DEFAULTS.degrade_time_minutes or 0 if minutes is None else minutes) * 60 * SECOND
