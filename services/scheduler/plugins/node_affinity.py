"""NodeAffinity: the pod's node selector and affinity against the labels of the nodes.

Filter: `nodeSelector` and one of the required terms. Score: the sum of the weights of the preferred terms that match.

Source: spec/scheduler-core.md 2.2, 2.4.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.ask import PodAsk
from services.scheduler.change import Change
from services.scheduler.framework import Ledger, Normalize, Room, Rows, Trial
from services.scheduler.nodes import NodeTable
from services.scheduler.plugins.static import StaticTrial
from services.scheduler.reasons import Reason
from shared.kube.selectors import NodeSelectorTerm, Requirement

Bools = NDArray[np.bool_]


class NodeAffinity:
    """Refuses nodes that the pod's selector or required terms do not match; prefers those that its preferred terms do."""

    name: ClassVar[str] = "NodeAffinity"
    static: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.UP
    cures: ClassVar[Mapping[str, frozenset[Change]]] = {"NodeAffinityMismatch": frozenset((Change.LABELS,))}

    def new_ledger(self) -> None:
        """No account of its own."""

    def trial(self, room: Room, ledger: Ledger | None, now_ns: int) -> Trial:  # noqa: ARG002
        """Verdict 1: no match. Raw score: the sum of the weights of matching preferred terms."""
        return StaticTrial(self, room.table, _reads, _judge, _weigh)

    def reasons(self, ask: PodAsk, verdict: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The one reason there is."""
        return (Reason("NodeAffinityMismatch"),)


def _reads(ask: PodAsk) -> object:
    spec = ask.pod.spec
    return spec.node_selector, spec.affinity.node_affinity if spec.affinity else None


def _judge(table: NodeTable, ask: PodAsk, rows: Rows) -> NDArray[np.int64]:
    spec = ask.pod.spec
    matches = np.ones(table.size, np.bool_)
    for key, value in (spec.node_selector or {}).items():
        matches &= table.labels.matches(Requirement(key=key, operator="In", values=(value,)), table.size)
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity and affinity.required is not None:
        one_of = np.zeros(table.size, np.bool_)
        for term in affinity.required.node_selector_terms:
            one_of |= term_matches(table, term)
        matches &= one_of
    return (~matches[rows]).astype(np.int64)


def _weigh(table: NodeTable, ask: PodAsk, rows: Rows) -> NDArray[np.int64]:
    affinity = ask.pod.spec.affinity.node_affinity if ask.pod.spec.affinity else None
    weights = np.zeros(table.size, np.int64)
    for preferred in affinity.preferred if affinity else ():
        weights += term_matches(table, preferred.preference) * preferred.weight
    return weights[rows]


def term_matches(table: NodeTable, term: NodeSelectorTerm) -> Bools:
    """bool[rows]: which nodes meet every expression of a term; a term without any matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(table.size, np.bool_)
    matches = np.ones(table.size, np.bool_)
    for requirement in term.match_expressions:
        matches &= table.labels.matches(requirement, table.size)
    for requirement in term.match_fields:
        matches &= _field_matches(table, requirement)
    return matches


def _field_matches(table: NodeTable, requirement: Requirement) -> Bools:
    """`metadata.name` In or NotIn; no other field can be selected by."""
    named = np.zeros(table.size, np.bool_)
    if requirement.key != "metadata.name" or requirement.operator not in ("In", "NotIn"):
        return named
    named[[table.rows[name] for name in requirement.values if name in table.rows]] = True
    return named if requirement.operator == "In" else ~named
