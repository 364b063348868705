"""Affinity terms between one class of pods and all others, counted by domain; placements of a cycle move the counts."""

import numpy as np

from services.scheduler.cache.cycle_pod_changes import PodChange, PodChangeCounter
from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.inter_pod_affinity_filter import WHERE_ANY, WHERE_NONE, mark
from services.scheduler.plugins.helper.topology_domains import Domains, domains
from services.scheduler.plugins.inter_pod_affinity.affinity_index import AffinityIndex
from services.scheduler.plugins.inter_pod_affinity.affinity_terms import NO_TERMS, terms_of
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.label_selectors import Matcher
from shared.domain.pod_affinity_terms import Term

EXISTING, ANTI_AFFINITY, AFFINITY = 1, 2, 3
"""Verdicts: which rule refuses a node; of several the highest, which is asked first."""


class _Effect:
    """Change of the counts by one more pod of a class, for the node that it is placed on."""

    __slots__ = ("anti", "existing", "is_near", "weights")

    def __init__(self) -> None:
        self.is_near = False  # all required affinity terms match it
        self.anti: list[int] = []  # numbers of the anti-affinity terms that match it
        self.existing: dict[str, int] = {}  # key -> number of its anti-affinity terms that match our class
        self.weights: dict[str, int] = {}  # key -> its part of the score

    def any(self) -> bool:
        return bool(self.is_near or self.anti or self.existing or self.weights)


class AffinityCounts(PodChangeCounter):
    """Counts for one class in a cycle.

    Attributes:
        has_terms: the class has terms of its own; without any, only placements of pods that have some concern it.
        prefers: it has preferred terms.
        revision: number of counted and undone changes that concerned the class.
    """

    def __init__(
        self, pod_class: PodClass, hard_weight: int, snapshot: CycleSnapshot, plugin_cache: AffinityIndex
    ) -> None:
        self._pod_class = pod_class
        self._hard_weight = hard_weight
        self._snapshot = snapshot
        super().__init__()
        self.revision = 0
        self._effects: dict[PodClass, _Effect] = {}
        self._terms = terms_of(pod_class)
        self.has_terms = self._terms is not NO_TERMS
        self.prefers = bool(self._terms.preferred or self._terms.preferred_anti)
        cluster_objects = snapshot.cluster_objects
        self._namespace_labels = cluster_objects.namespaces.get(pod_class.namespace)
        self._near = tuple(term.matcher(cluster_objects.namespaces_selected) for term in self._terms.affinity)
        self._means_itself = all(matcher.matches(pod_class.namespace, pod_class.labels) for matcher in self._near)
        self._far = tuple(term.matcher(cluster_objects.namespaces_selected) for term in self._terms.anti_affinity)
        self._preferred: tuple[tuple[Term, Matcher, int], ...] = (
            *(
                (term, term.matcher(cluster_objects.namespaces_selected), weight)
                for term, weight in self._terms.preferred
            ),
            *(
                (term, term.matcher(cluster_objects.namespaces_selected), -weight)
                for term, weight in self._terms.preferred_anti
            ),
        )
        # By domain of each topology key:
        self._near_pods: list[Int64] = []  # one per affinity term, by its key
        self._far_pods: list[Int64] = []  # one per anti-affinity term
        self._existing: dict[str, Int64] = {}  # key -> number of terms of pods there that match the class
        self._weights: dict[str, Int64] = {}  # key -> sum of weights
        # Place of a counted change -> keys of `_existing` and of `_weights` that are there only since: a key changes what
        # is recorded even where its sums are 0, so undoing the change removes it.
        self._new_keys: dict[int, tuple[list[str], list[str]]] = {}
        self._ignores_scores = False
        self._count_required()
        self._count_running(plugin_cache)
        for term, matcher, weight in self._preferred:
            counted = self._domains(term.key).counted(snapshot.pod_index.counts((matcher,), with_terminating=True))
            if counted.any():
                self._add_weights(term.key, counted * weight)

    def ignore_scores(self) -> None:
        """Leaves the class unscored, whatever terms other pods have."""
        self._ignores_scores = True

    def results(self) -> Int64 | None:
        """int64[rows]: the first rule that rejects each node; None when no term concerns the class."""
        if not self._near_pods and not self._far_pods and not self._existing:
            return None
        results = np.zeros(self._snapshot.size, np.int64)
        for key, counted in self._existing.items():
            mark(results, self._domains(key).of, counted, EXISTING, WHERE_ANY)
        for term, counted in zip(self._terms.anti_affinity, self._far_pods, strict=True):
            mark(results, self._domains(term.key).of, counted, ANTI_AFFINITY, WHERE_ANY)
        starts_group = self._means_itself and not any(counted.any() for counted in self._near_pods)
        for term, counted in zip(self._terms.affinity, self._near_pods, strict=True):
            near = counted
            if starts_group:  # every node that has the keys is feasible
                near = np.ones_like(counted)
                near[-1] = 0
            mark(results, self._domains(term.key).of, near, AFFINITY, WHERE_NONE)
        return results

    def raw(self) -> Int64 | None:
        """int64[rows]: raw scores; None when no term concerns the class."""
        if self._ignores_scores or not self._weights:
            return None
        raw = np.zeros(self._snapshot.size, np.int64)
        for key, weights in self._weights.items():
            raw += weights[self._domains(key).of]
        return raw

    def concerns(self, pod_class: PodClass) -> bool:
        """Reports whether a term of this class, or of the other, is about the other one."""
        effect = self._effects[pod_class] = self._effect(pod_class)
        return effect.any()

    def count(self, change: PodChange) -> None:
        """Counts a pod that the cycle has placed or removed."""
        pod_class, row, sign, _ = change  # pods that are terminating count
        self.revision += 1
        self._apply(self._effects[pod_class], row, sign)

    def undo_count(self, change: PodChange) -> None:
        """Undoes the last count."""
        pod_class, row, sign, _ = change  # pods that are terminating count
        self.revision += 1
        self._apply(self._effects[pod_class], row, -sign)
        existing, weights = self._new_keys.pop(self.upto, ((), ()))
        for key in existing:
            del self._existing[key]
        for key in weights:
            del self._weights[key]

    def _count_required(self) -> None:
        pod_index = self._snapshot.pod_index
        if self._near:
            near = pod_index.counts(self._near, with_terminating=True)
            self._near_pods = [self._domains(term.key).counted(near) for term in self._terms.affinity]
        self._far_pods = [
            self._domains(term.key).counted(pod_index.counts((matcher,), with_terminating=True))
            for term, matcher in zip(self._terms.anti_affinity, self._far, strict=True)
        ]

    def _count_running(self, plugin_cache: AffinityIndex) -> None:
        """Counts the terms of running pods that match this class."""
        for term, counts in plugin_cache.matching_terms(self._pod_class, self._namespace_labels):
            inside = self._domains(term.key)
            if counts.anti.rows:
                counted = inside.counted(counts.anti)
                if counted.any():
                    self._existing[term.key] = self._existing.get(term.key, 0) + counted
            if counts.soft.rows and inside.counted(counts.soft).any():
                self._add_weights(term.key, inside.counted(counts.weight))
            if counts.affinity.rows and self._hard_weight:
                counted = inside.counted(counts.affinity)
                if counted.any():
                    self._add_weights(term.key, counted * self._hard_weight)

    def _effect(self, pod_class: PodClass) -> _Effect:
        """The change of the counts by a pod of another class, or of this one."""
        effect = _Effect()
        effect.is_near = bool(self._near) and all(m.matches(pod_class.namespace, pod_class.labels) for m in self._near)
        effect.anti = [
            n for n, matcher in enumerate(self._far) if matcher.matches(pod_class.namespace, pod_class.labels)
        ]
        for term, matcher, weight in self._preferred:
            if matcher.matches(pod_class.namespace, pod_class.labels):
                effect.weights[term.key] = effect.weights.get(term.key, 0) + weight
        theirs, labels = terms_of(pod_class), self._namespace_labels
        for term in theirs.anti_affinity:
            if term.matches(self._pod_class.namespace, self._pod_class.labels, labels):
                effect.existing[term.key] = effect.existing.get(term.key, 0) + 1
        weighted = (
            *((term, self._hard_weight) for term in theirs.affinity if self._hard_weight),
            *theirs.preferred,
            *((term, -weight) for term, weight in theirs.preferred_anti),
        )
        for term, weight in weighted:
            if term.matches(self._pod_class.namespace, self._pod_class.labels, labels):
                effect.weights[term.key] = effect.weights.get(term.key, 0) + weight
        return effect

    def _apply(self, effect: _Effect, row: int, sign: int) -> None:
        if effect.is_near:
            for term, counted in zip(self._terms.affinity, self._near_pods, strict=True):
                self._move(counted, self._domains(term.key), row, sign)
        for number in effect.anti:
            self._move(self._far_pods[number], self._domains(self._terms.anti_affinity[number].key), row, sign)
        for key, terms in effect.existing.items():
            inside = self._domains(key)
            if inside.known[row]:
                if key not in self._existing:
                    self._existing[key] = np.zeros(inside.size + 1, np.int64)
                    self._new_keys.setdefault(self.upto, ([], []))[0].append(key)
                self._move(self._existing[key], inside, row, sign * terms)
        for key, weight in effect.weights.items():
            inside = self._domains(key)
            if inside.known[row]:
                if key not in self._weights:
                    self._weights[key] = np.zeros(inside.size + 1, np.int64)
                    self._new_keys.setdefault(self.upto, ([], []))[1].append(key)
                self._move(self._weights[key], inside, row, sign * weight)

    def _domains(self, key: str) -> Domains:
        return domains(self._snapshot.table, key)

    def _add_weights(self, key: str, weights: Int64) -> None:
        before = self._weights.get(key)
        self._weights[key] = weights if before is None else before + weights

    @staticmethod
    def _move(counted: Int64, inside: Domains, row: int, by: int) -> None:
        if inside.known[row]:
            counted[inside.of[row]] += by
