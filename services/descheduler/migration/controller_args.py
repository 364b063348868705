"""The arguments of the plugin MigrationController: their schema, defaults and checks.

Source: spec/descheduler.md 3.2, spec/api.md 4.4; upstream pkg/descheduler/apis/config/v1alpha2.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, field

from services.descheduler.migration.object_limiter import NAMESPACE, WORKLOAD
from services.descheduler.migration.pod_migration_job import EVICT_DIRECTLY, RESERVATION_FIRST, DeleteOptions
from services.descheduler.migration.workload_limits import IntOrPercent
from shared.domain.component_config import (
    BadConfig,
    Strict,
    check_one_of,
    check_selector,
    converted,
    duration_from_zero,
)
from shared.kube.instants import SECOND
from shared.kube.selectors import LabelSelector

EVICTION, DELETE, SOFT_EVICTION = "Eviction", "Delete", "SoftEviction"
METHODS = (EVICTION, DELETE, SOFT_EVICTION)

GATES = (
    "MaxMigratingGlobally",
    "MaxMigratingPerNode",
    "MaxMigratingPerNamespace",
    "MaxMigratingPerWorkload",
    "MaxUnavailablePerWorkload",
    "ExpectedReplicas",
    "PVC",
    "BarePods",
    "LocalStorage",
    "SystemCritical",
    "PriorityThreshold",
    "LabelSelector",
    "Namespaces",
    "NodeFit",
)
"""Checks that `skipEvictionGates` can switch off."""

_PERCENT = re.compile(r"[0-9]+%").fullmatch
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?").fullmatch
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Namespaces(Strict):
    """Namespaces whose pods may be evicted, or may not."""

    include: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)


class PriorityThreshold(Strict):
    """The lowest priority of pods that are not evicted; a name alone has no effect, as upstream."""

    value: int | None = None
    name: str = ""


class ObjectLimiterArgs(Strict):
    """A limit on the evictions of the pods of one object over time."""

    duration: str = "0s"
    max_migrating: int | str | None = None
    burst: Count = 0


class ArbitrationArgs(Strict):
    """The arbitrator; `enabled` has no effect, as upstream."""

    enabled: bool = True
    interval: str = "500ms"


class _Document(Strict):
    dry_run: bool = False
    max_concurrent_reconciles: Annotated[int, Meta(ge=1)] = 1
    evict_failed_bare_pods: bool = False
    evict_all_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    priority_threshold: PriorityThreshold | None = None
    label_selector: LabelSelector | None = None
    namespaces: Namespaces | None = None
    node_fit: bool = False
    node_selector: str = ""
    skip_eviction_gates: list[str] = field(default_factory=list)
    max_migrating_globally: Count | None = None
    max_migrating_per_node: Count | None = 2
    max_migrating_per_namespace: Count | None = None
    max_migrating_per_workload: int | str | None = None
    max_unavailable_per_workload: int | str | None = None
    skip_check_expected_replicas: bool | None = None
    object_limiters: dict[str, ObjectLimiterArgs] | None = None
    default_job_mode: str = RESERVATION_FIRST
    default_job_ttl: str = field(default="5m0s", name="defaultJobTTL")
    scheduler_names: list[str] = field(default_factory=list)
    evict_qps: float | str = field(default=10.0, name="evictQPS")
    evict_burst: Annotated[int, Meta(ge=1)] = 1
    eviction_policy: str = EVICTION
    default_delete_options: DeleteOptions | None = None
    arbitration_args: ArbitrationArgs | None = None


class ObjectLimiter(NamedTuple):
    """A limiter that was read; see `object_limiter.Limit`.

    Attributes:
        max_migrating: None: that of the workload limit.
    """

    duration_ns: int
    max_migrating: IntOrPercent | None
    burst: int


class MigrationArgs(NamedTuple):
    """The arguments in force: those that a gate of `skipEvictionGates` skips have no effect.

    Attributes:
        priority_threshold: priorities from here on are not evicted.
        include, exclude: namespaces; `include` empty: all.
        max_globally, max_per_node, max_per_namespace: 0 for no limit.
        limits_migrating, limits_unavailable, expects_replicas: whether these checks of a workload apply.
        default_mode: of a job without a mode.
        scheduler_names: schedulers that hold places by Reservations.
        default_ttl_ns: 0 for no time-out.
        evict_interval_ns: of two evictions, after a burst.
        interval_ns: of two rounds of the arbitrator.
    """

    dry_run: bool
    evict_failed_bare: bool
    evict_all_bare: bool
    evict_local_storage: bool
    evict_system_critical: bool
    ignore_pvc: bool
    priority_threshold: int | None
    label_selector: LabelSelector | None
    include: frozenset[str]
    exclude: frozenset[str]
    node_fit: bool
    node_selector: str
    max_globally: int
    max_per_node: int
    max_per_namespace: int
    max_per_workload: IntOrPercent | None
    max_unavailable: IntOrPercent | None
    limits_migrating: bool
    limits_unavailable: bool
    expects_replicas: bool
    object_limiters: Mapping[str, ObjectLimiter]
    default_mode: str
    default_ttl_ns: int
    scheduler_names: tuple[str, ...]
    evict_interval_ns: int
    evict_burst: int
    method: str
    grace_period_s: int | None
    interval_ns: int


def read_args(plain: Mapping[str, Any], path: str) -> MigrationArgs:
    """Reads the arguments; absent ones have upstream's defaults.

    Args:
        plain: without `apiVersion` and `kind`.
        path: their place in the configuration.

    Raises:
        BadConfig: an unknown field, or an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    namespaces, threshold = given.namespaces or Namespaces(), given.priority_threshold
    if namespaces.include and namespaces.exclude:
        raise BadConfig(f"{path}.namespaces", "both include and exclude are given; give one of them")
    check_selector(given.label_selector, f"{path}.labelSelector")
    for number, gate in enumerate(given.skip_eviction_gates):
        check_one_of(gate, GATES, f"{path}.skipEvictionGates[{number}]")
    check_one_of(given.default_job_mode, (RESERVATION_FIRST, EVICT_DIRECTLY), f"{path}.defaultJobMode")
    check_one_of(given.eviction_policy, METHODS, f"{path}.evictionPolicy")
    skipped = frozenset(given.skip_eviction_gates)
    if "Namespaces" in skipped:
        namespaces = Namespaces()
    return MigrationArgs(
        dry_run=given.dry_run,
        evict_failed_bare=given.evict_failed_bare_pods or "BarePods" in skipped,
        evict_all_bare=given.evict_all_bare_pods or "BarePods" in skipped,
        evict_local_storage=given.evict_local_storage_pods or "LocalStorage" in skipped,
        evict_system_critical=given.evict_system_critical_pods or "SystemCritical" in skipped,
        ignore_pvc=given.ignore_pvc_pods and "PVC" not in skipped,
        priority_threshold=None if threshold is None or "PriorityThreshold" in skipped else threshold.value,
        label_selector=None if "LabelSelector" in skipped else given.label_selector,
        include=frozenset(namespaces.include),
        exclude=frozenset(namespaces.exclude),
        node_fit=given.node_fit,
        node_selector=given.node_selector,
        max_globally=0 if "MaxMigratingGlobally" in skipped else given.max_migrating_globally or 0,
        max_per_node=0 if "MaxMigratingPerNode" in skipped else given.max_migrating_per_node or 0,
        max_per_namespace=0 if "MaxMigratingPerNamespace" in skipped else given.max_migrating_per_namespace or 0,
        max_per_workload=_amount(given.max_migrating_per_workload, f"{path}.maxMigratingPerWorkload"),
        max_unavailable=_amount(given.max_unavailable_per_workload, f"{path}.maxUnavailablePerWorkload"),
        limits_migrating="MaxMigratingPerWorkload" not in skipped,
        limits_unavailable="MaxUnavailablePerWorkload" not in skipped,
        expects_replicas="ExpectedReplicas" not in skipped and not given.skip_check_expected_replicas,
        object_limiters=_limiters(given.object_limiters, f"{path}.objectLimiters"),
        default_mode=given.default_job_mode,
        default_ttl_ns=duration_from_zero(given.default_job_ttl, f"{path}.defaultJobTTL"),
        scheduler_names=tuple(given.scheduler_names) or ("koord-scheduler",),
        evict_interval_ns=_interval_ns(given.evict_qps, f"{path}.evictQPS"),
        evict_burst=given.evict_burst,
        method=given.eviction_policy,
        grace_period_s=None if (options := given.default_delete_options) is None else options.grace_period_seconds,
        interval_ns=duration_from_zero(
            (given.arbitration_args or ArbitrationArgs()).interval, f"{path}.arbitrationArgs.interval"
        ),
    )


def _amount(value: int | str | None, path: str) -> IntOrPercent | None:
    """Returns a number or a percentage; a negative number is none that any workload meets, as upstream."""
    if isinstance(value, str) and not _PERCENT(value):
        raise BadConfig(path, f"{value!r}; give a number, or a percentage such as 10%")
    return value


def _interval_ns(rate: float | str, path: str) -> int:
    if isinstance(rate, str) and not _NUMBER(rate):
        raise BadConfig(path, f"{rate!r} is no number of evictions a second")
    if float(rate) <= 0:
        raise BadConfig(path, f"{rate!r}; give a number above 0")
    return int(SECOND / float(rate))


def _limiters(given: Mapping[str, ObjectLimiterArgs] | None, path: str) -> dict[str, ObjectLimiter]:
    if not given:
        return {WORKLOAD: ObjectLimiter(300 * SECOND, None, 0)}
    found = {}
    for kind, each in given.items():
        check_one_of(kind, (WORKLOAD, NAMESPACE), path)
        where = f"{path}.{kind}"
        found[kind] = ObjectLimiter(
            duration_from_zero(each.duration, f"{where}.duration"),
            _amount(each.max_migrating, f"{where}.maxMigrating"),
            each.burst,
        )
    return found
