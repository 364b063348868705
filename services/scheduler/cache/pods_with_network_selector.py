"""The pods that a `network-topology-selector` groups, by node."""

from collections import Counter

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.network_topology import SELECTOR


def network_selector(pod_class: PodClass) -> str:
    """Returns the selector of a class; empty without one."""
    return (pod_class.pod.metadata.annotations or {}).get(SELECTOR, "")


def pods_with_network_selector(snapshot: CycleSnapshot, selector: str) -> Counter[int]:
    """Returns row -> the pods there that have the selector, with those that the cycle has placed and removed."""
    rows: Counter[int] = Counter()
    for pod_class, counts in snapshot.pod_index.classes():
        if network_selector(pod_class) == selector:
            rows.update(counts)
    for change in snapshot.pod_changes.changes:
        if network_selector(change.pod_class) == selector:
            rows[change.row] += change.sign
    return rows
