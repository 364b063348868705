"""The rules of eviction in force: the arguments of MigrationController after `skipEvictionGates`.

Source: spec/descheduler.md 3.8.
"""

from typing import NamedTuple

from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.workload_limits import IntOrPercent
from shared.kube.selectors import LabelSelector


class EvictionRules(NamedTuple):
    """Rules about which pods may be evicted, and how many at once.

    Attributes:
        max_globally, max_per_node, max_per_namespace: 0 for no limit.
        limits_migrating, limits_unavailable, expects_replicas: whether these checks of a workload apply.
        priority_threshold: priorities from here on are not evicted.
        include, exclude: namespaces; `include` empty: all.
        default_mode: of a job without a mode.
        scheduler_names: schedulers that hold places by Reservations.
    """

    max_globally: int
    max_per_node: int
    max_per_namespace: int
    max_per_workload: IntOrPercent | None
    max_unavailable: IntOrPercent | None
    limits_migrating: bool
    limits_unavailable: bool
    expects_replicas: bool
    evict_failed_bare: bool
    evict_all_bare: bool
    evict_local_storage: bool
    evict_system_critical: bool
    ignore_pvc: bool
    priority_threshold: int | None
    label_selector: LabelSelector | None
    include: frozenset[str]
    exclude: frozenset[str]
    default_mode: str
    scheduler_names: tuple[str, ...]


def eviction_rules(args: MigrationArgs) -> EvictionRules:
    """Returns the rules that arguments give."""
    skipped = args.skip_eviction_gates
    bare, namespaces = "BarePods" in skipped, "Namespaces" in skipped
    return EvictionRules(
        max_globally=0 if "MaxMigratingGlobally" in skipped else args.max_globally,
        max_per_node=0 if "MaxMigratingPerNode" in skipped else args.max_per_node,
        max_per_namespace=0 if "MaxMigratingPerNamespace" in skipped else args.max_per_namespace,
        max_per_workload=args.max_per_workload,
        max_unavailable=args.max_unavailable,
        limits_migrating="MaxMigratingPerWorkload" not in skipped,
        limits_unavailable="MaxUnavailablePerWorkload" not in skipped,
        expects_replicas="ExpectedReplicas" not in skipped and not args.skip_expected_replicas,
        evict_failed_bare=args.evict_failed_bare or bare,
        evict_all_bare=args.evict_all_bare or bare,
        evict_local_storage=args.evict_local_storage or "LocalStorage" in skipped,
        evict_system_critical=args.evict_system_critical or "SystemCritical" in skipped,
        ignore_pvc=args.ignore_pvc and "PVC" not in skipped,
        priority_threshold=None if "PriorityThreshold" in skipped else args.priority_threshold,
        label_selector=None if "LabelSelector" in skipped else args.label_selector,
        include=frozenset() if namespaces else args.include,
        exclude=frozenset() if namespaces else args.exclude,
        default_mode=args.default_mode,
        scheduler_names=args.scheduler_names,
    )
