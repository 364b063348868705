"""The age at which a usage report expires, and with it the batch and mid resources computed from it.

Source: spec/slo-controller.md 3.3-3.5; upstream pkg/slo-controller/noderesource/{framework,plugins}.
"""

from services.slo_controller.config.colocation_strategy import DEFAULTS
from services.slo_controller.state.usage_report import UsageReport
from shared.kube.instants import SECOND
from shared.kube.slo_config import ColocationStrategy


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
