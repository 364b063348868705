"""Index of the affinity terms of the running pods: term -> number of pods on each node that have it.

Terms repeat over the pods of a workload, so there are far fewer of them than pods. For a new pod, only the terms whose
selector names one of its labels are matched.
"""

from collections.abc import Iterator, Mapping

from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.cache.pod_counts_by_selector_and_node import RowCounts
from services.scheduler.plugins.inter_pod_affinity.affinity_terms import terms_of
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment
from shared.domain.label_selectors import anchors, label_pairs
from shared.domain.pod_affinity_terms import Term


class TermCounts:
    """Counts of the pods that have one term, by row.

    Attributes:
        anti: pods that require it as anti-affinity.
        affinity: pods that require it as affinity.
        weight: sum of the weights of those that prefer it, less those that prefer it as anti-affinity.
        soft: pods that prefer it, either way.
    """

    __slots__ = ("affinity", "anti", "soft", "weight")

    def __init__(self) -> None:
        self.anti = RowCounts()
        self.affinity = RowCounts()
        self.weight = RowCounts()
        self.soft = RowCounts()

    def any(self) -> bool:
        """Returns True where a pod has the term."""
        return bool(self.anti.rows or self.affinity.rows or self.soft.rows)


class AffinityIndex(PluginCache):
    """The terms of the pods that count on nodes."""

    def __init__(self) -> None:
        self._counts: dict[Term, TermCounts] = {}
        self._by_anchor: dict[tuple[str, str], dict[Term, None]] = {}
        self._unanchored: dict[Term, None] = {}

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns True for a class with terms."""
        return any(terms_of(pod_class))

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:  # noqa: ARG002 (terms are counted, not whose they are)
        """Counts the terms of the pod on its node."""
        self._count(row, assignment.pod_class, 1)

    def release(self, row: int, uid: str, assignment: Assignment) -> None:  # noqa: ARG002
        """Counts the terms of the pod no longer."""
        self._count(row, assignment.pod_class, -1)

    def any(self) -> bool:
        """Returns True where a pod has a term."""
        return bool(self._counts)

    def matching_terms(
        self, pod_class: PodClass, namespace_labels: Mapping[str, str] | None
    ) -> Iterator[tuple[Term, TermCounts]]:
        """The terms that match a pod of the class."""
        if not self._counts:
            return
        candidates = dict(self._unanchored)
        if self._by_anchor:
            for pair in label_pairs(pod_class.labels):
                candidates.update(self._by_anchor.get(pair, ()))
        for term in candidates:
            if term.matches(pod_class.namespace, pod_class.labels, namespace_labels):
                yield term, self._counts[term]

    def _count(self, row: int, pod_class: PodClass, sign: int) -> None:
        terms = terms_of(pod_class)
        for term in terms.anti_affinity:
            self._of(term).anti.add(row, sign)
        for term in terms.affinity:
            self._of(term).affinity.add(row, sign)
        for preferred, kind in ((terms.preferred, 1), (terms.preferred_anti, -1)):
            for term, weight in preferred:
                counts = self._of(term)
                counts.soft.add(row, sign)
                if weight:
                    counts.weight.add(row, sign * kind * weight)
        if sign < 0:
            for term in (
                *terms.anti_affinity,
                *terms.affinity,
                *(t for t, _ in (*terms.preferred, *terms.preferred_anti)),
            ):
                holders_left = self._counts.get(term)
                if holders_left is not None and not holders_left.any():
                    self._drop(term)

    def _of(self, term: Term) -> TermCounts:
        counts = self._counts.get(term)
        if counts is None:
            counts = self._counts[term] = TermCounts()
            for pair in anchors(term.selector or ()):
                self._by_anchor.setdefault(pair, {})[term] = None
            if not anchors(term.selector or ()):
                self._unanchored[term] = None
        return counts

    def _drop(self, term: Term) -> None:
        del self._counts[term]
        self._unanchored.pop(term, None)
        for pair in anchors(term.selector or ()):
            members = self._by_anchor[pair]
            del members[term]
            if not members:
                del self._by_anchor[pair]
