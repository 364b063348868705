"""The limits of a cycle, which all profiles and plugins share.

Source: spec/descheduler.md 1.4.
"""

from collections import Counter
from collections.abc import Sequence

from services.descheduler.configuration.configuration import Configuration


class EvictionLimits:
    """Counts the evictions of one cycle, dry-run ones included; a limit of 0 blocks all."""

    def __init__(self, configuration: Configuration) -> None:
        self._per_node = configuration.max_per_node
        self._per_namespace = configuration.max_per_namespace
        self._total = configuration.max_total
        self._nodes: Counter[str] = Counter()
        self._namespaces: Counter[str] = Counter()
        self._evicted = 0

    def refusal(self, node: str, namespace: str, besides: Sequence[tuple[str, str]] = ()) -> str:
        """Returns the first limit that one more eviction would exceed: node, namespace, total; empty for none.

        Args:
            besides: node and namespace of each further eviction that would be made, too.
        """
        on_node = self._nodes[node] + sum(each == node for each, _ in besides)
        of_namespace = self._namespaces[namespace] + sum(each == namespace for _, each in besides)
        for limit, count, name in (
            (self._per_node if node else None, on_node, f"maxNoOfPodsToEvictPerNode of {node}"),
            (self._per_namespace, of_namespace, f"maxNoOfPodsToEvictPerNamespace of {namespace}"),
            (self._total, self._evicted + len(besides), "maxNoOfPodsToEvictTotal"),
        ):
            if limit is not None and count + 1 > limit:
                return f"{name} is {limit}"
        return ""

    def most(self, number: int) -> int:
        """Returns how many evictions the limit on the total leaves, at most this number."""
        return number if self._total is None else min(max(self._total - self._evicted, 0), number)

    def count(self, node: str, namespace: str) -> None:
        """Counts an eviction."""
        self._nodes[node] += 1
        self._namespaces[namespace] += 1
        self._evicted += 1

    def is_spent(self) -> bool:
        """Reports whether the limit on the total leaves nothing."""
        return self._total is not None and self._evicted >= self._total

    def left(self) -> dict[str, int]:
        """Returns what is left of the limit on the total; empty without one."""
        return {} if self._total is None else {"maxNoOfPodsToEvictTotal": max(self._total - self._evicted, 0)}
