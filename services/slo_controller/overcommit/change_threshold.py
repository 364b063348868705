"""When a node's amounts have moved far enough to be written, and when its reports are too old to rest on.

Source: spec/slo-controller.md 3.3-3.5; upstream pkg/slo-controller/noderesource/{framework,plugins}.
"""

from collections.abc import Iterable, Mapping

from services.slo_controller.config.colocation_strategy import DEFAULTS
from services.slo_controller.state.node_usage import Measured
from shared.kube.instants import SECOND
from shared.kube.quantity import milli
from shared.kube.slo_config import ColocationStrategy, Hysteresis


def moved(old: Mapping[str, int], new: Mapping[str, int], names: Iterable[str], strategy: ColocationStrategy) -> bool:
    """Reports whether one of these resources appeared, went, or moved by more than the threshold.

    |new - old| > old * threshold, in thousandths; the threshold is `resourceDiffThreshold`, or a percentage of its own for a rise and for
    a fall where `koordstream.hysteresis` states one.

    Args:
        old, new: resource -> amount in nanos; a resource that is absent has none.
    """
    ratio, steadiness = strategy.resource_diff_threshold, strategy.koordstream
    threshold = DEFAULTS.resource_diff_threshold or 0.0 if ratio is None else ratio
    hysteresis = steadiness.hysteresis if steadiness else None
    for name in names:
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            if before is not after:
                return True
        elif differs(before, after, threshold, hysteresis):
            return True
    return False


def differs(old_nanos: int, new_nanos: int, threshold: float, hysteresis: Hysteresis | None = None) -> bool:
    """Whether an amount moved by more than a share of the old one."""
    old, new = milli(old_nanos), milli(new_nanos)
    if hysteresis is not None:
        percent = hysteresis.rise_percent if new > old else hysteresis.fall_percent
        if percent is not None:
            threshold = percent / 100
    return abs(new - old) > float(old) * threshold


def is_degraded(measured: Measured, strategy: ColocationStrategy, now_ns: int) -> bool:
    """Whether what was measured is missing or older than `degradeTimeMinutes`; at exactly that age it still counts.

    A report without a part about the node counts as missing: upstream crashes on it.
    """
    return not measured.has_node or expires_ns(measured, strategy) < now_ns


def expires_ns(measured: Measured, strategy: ColocationStrategy) -> int:
    """The last instant at which what was measured counts; 0 when nothing was."""
    if not measured.at_ns:
        return 0
    minutes = strategy.degrade_time_minutes
    return measured.at_ns + (DEFAULTS.degrade_time_minutes or 0 if minutes is None else minutes) * 60 * SECOND
