"""The threshold from which a change of an amount is large enough to be written.

Source: spec/slo-controller.md 3.3-3.5; upstream pkg/slo-controller/noderesource/{framework,plugins}.
"""

from collections.abc import Iterable, Mapping

from services.slo_controller.config.colocation_strategy import DEFAULTS
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
