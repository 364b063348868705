"""Pods by node, by class and by selector, so that no decision reads every pod.

A selector is counted over the classes of pods when it is first queried; afterwards its counts change with each assigned
or released pod. Counts are kept by node, so that one count serves every topology key and every choice of nodes.

Counts that were not queried lately are dropped; they can be computed anew at any time.
"""

from collections.abc import Iterator

import numpy as np

from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.label_selectors import Matcher, anchors, label_pairs

MOST_ENTRIES = 2_000_000
"""Maximum number of (selector, node) pairs: some 200 MB."""

Question = tuple[tuple[Matcher, ...], bool]
"""(matchers that must all match, whether pods that are being deleted count)."""


class RowCounts:
    """A number for each row, stored where it is not 0; also as an array once `dense` was called."""

    __slots__ = ("_dense", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self._dense: Int64 | None = None

    def add(self, row: int, by: int) -> None:
        """Changes a row's number by a difference."""
        after = self.rows.get(row, 0) + by
        if after:
            self.rows[row] = after
        else:
            del self.rows[row]
        dense = self._dense
        if dense is not None:
            if row < len(dense):
                dense[row] = after
            else:
                self._dense = None

    def dense(self, size: int) -> Int64:
        """Returns int64[size]. The caller must not write to it; `add` changes it."""
        dense = self._dense
        if dense is None or len(dense) < size:
            dense = self._dense = np.zeros(size + size // 4, np.int64)
            if self.rows:
                dense[np.fromiter(self.rows, np.intp, len(self.rows))] = np.fromiter(
                    self.rows.values(), np.int64, len(self.rows)
                )
        return dense[:size]


class _Class:
    """Row -> number of pods of a class, all of them and the terminating ones, and the counts that include them."""

    __slots__ = ("all", "counted_in", "terminating")

    def __init__(self) -> None:
        self.all: dict[int, int] = {}
        self.terminating: dict[int, int] = {}
        self.counted_in: list[tuple[RowCounts, bool]] = []


class PodIndex:
    """The assigned pods by class and node, with counts by selector."""

    def __init__(self) -> None:
        self._classes: dict[PodClass, _Class] = {}
        self._by_namespace: dict[str, dict[PodClass, None]] = {}
        self._by_label: dict[tuple[str, str], dict[PodClass, None]] = {}
        self._counts: dict[Question, RowCounts] = {}  # least recently queried first
        self._by_anchor: dict[tuple[str, str], dict[Question, None]] = {}
        self._unanchored: dict[Question, None] = {}
        self._entries = 0

    def move(self, row: int, pod_class: PodClass, *, terminating: bool, sign: int) -> None:
        """Counts a pod of the class on a row (+1), or removes it (-1).

        Args:
            terminating: it is being deleted.
        """
        class_ = self._classes.get(pod_class)
        if class_ is None:
            class_ = self._classes[pod_class] = self._meet(pod_class)
        for rows in (class_.all, class_.terminating) if terminating else (class_.all,):
            after = rows.get(row, 0) + sign
            if after:
                rows[row] = after
            else:
                del rows[row]
        for counts, with_terminating in class_.counted_in:
            if with_terminating or not terminating:
                counts.add(row, sign)
        if not class_.all:
            self._part(pod_class)

    def counts(self, matchers: tuple[Matcher, ...], *, with_terminating: bool) -> RowCounts:
        """Returns the number of pods on each row that all matchers match; `move` keeps it current."""
        question = (matchers, with_terminating)
        counts = self._counts.pop(question, None)
        if counts is None:
            counts = self._count(question)
            self._entries += 64 + len(counts.rows)
            if self._entries > MOST_ENTRIES:
                self._drop_half()
        self._counts[question] = counts
        return counts

    def classes(self) -> Iterator[tuple[PodClass, dict[int, int]]]:
        """Yields every class with assigned pods, and row -> their number."""
        return ((pod_class, class_.all) for pod_class, class_ in self._classes.items())

    def _meet(self, pod_class: PodClass) -> _Class:
        """Adds a class without assigned pods so far."""
        self._by_namespace.setdefault(pod_class.namespace, {})[pod_class] = None
        questions = dict(self._unanchored)
        for pair in label_pairs(pod_class.labels):
            self._by_label.setdefault(pair, {})[pod_class] = None
            questions.update(self._by_anchor.get(pair, ()))
        class_ = _Class()
        class_.counted_in = [
            (self._counts[question], question[1]) for question in questions if _all_match(question[0], pod_class)
        ]
        return class_

    def _part(self, pod_class: PodClass) -> None:
        """Removes a class whose last pod was released."""
        del self._classes[pod_class]
        _discard(self._by_namespace, pod_class.namespace, pod_class)
        for pair in label_pairs(pod_class.labels):
            _discard(self._by_label, pair, pod_class)

    def _count(self, question: Question) -> RowCounts:
        matchers, with_terminating = question
        counts = RowCounts()
        found = _anchors_of(matchers)
        if found:
            candidates: dict[PodClass, None] = {}
            for pair in found:
                self._by_anchor.setdefault(pair, {})[question] = None
                candidates.update(self._by_label.get(pair, ()))
        else:
            self._unanchored[question] = None
            namespaces = matchers[0].namespaces if matchers else None
            if namespaces is None:
                candidates = dict.fromkeys(self._classes)
            else:
                candidates = {
                    pod_class: None
                    for namespace in sorted(namespaces)
                    for pod_class in self._by_namespace.get(namespace, ())
                }
        for pod_class in candidates:
            if not _all_match(matchers, pod_class):
                continue
            class_ = self._classes[pod_class]
            class_.counted_in.append((counts, with_terminating))
            for row, pods in class_.all.items():
                pods -= 0 if with_terminating else class_.terminating.get(row, 0)  # noqa: PLW2901 (what counts of them)
                if pods:
                    counts.add(row, pods)
        return counts

    def _drop_half(self) -> None:
        """Drops the half that was queried least recently."""
        for question in list(self._counts)[: len(self._counts) // 2]:
            del self._counts[question]
            self._unanchored.pop(question, None)
            for pair in _anchors_of(question[0]):
                _discard(self._by_anchor, pair, question)
        kept = {id(counts) for counts in self._counts.values()}
        for class_ in self._classes.values():
            class_.counted_in = [entry for entry in class_.counted_in if id(entry[0]) in kept]
        self._entries = sum(64 + len(counts.rows) for counts in self._counts.values())


def _anchors_of(matchers: tuple[Matcher, ...]) -> tuple[tuple[str, str], ...]:
    """Returns labels of which every pod that all matchers match has at least one; empty without such labels."""
    return next((found for matcher in matchers if (found := anchors(matcher.selector or ()))), ())


def _all_match(matchers: tuple[Matcher, ...], pod_class: PodClass) -> bool:
    return all(matcher.matches(pod_class.namespace, pod_class.labels) for matcher in matchers)


def _discard(index: dict, key: object, member: object) -> None:  # type: ignore[type-arg]  # one for every index here
    members = index.get(key)
    if members is not None:
        members.pop(member, None)
        if not members:
            del index[key]
