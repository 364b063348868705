"""One pod of the `reservation` cases: how nodes stand for it, its filter results, scores, and the Reservation that it
uses.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cli.parity.runners.scheduler.evaluation import Refusal, agree
from cli.parity.runners.scheduler.recorded_cluster import Tried
from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.reservation_holds import ReservedCapacity
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.profile import Profile
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Bools
from services.scheduler.plugins.registry import text
from services.scheduler.plugins.reservation.filter_and_nominate_reservations import lacks_with, score_of
from services.scheduler.plugins.reservation.plugin import ReservationPlugin, ReservationState
from services.scheduler.plugins.reservation.reservation_affinity import Wish, wish_of
from services.scheduler.plugins.reservation.reservations_a_pod_may_use import decision, untolerated_taint
from shared.kube.system_annotations import RESERVATION_ALLOCATED

SUCCESS = {"code": "Success"}
_COUNTERS = {
    "unschedulable": "unschedulable",
    "affinity": "affinityUnmatched",
    "notExact": "notExactMatched",
    "name": "nameUnmatched",
    "taints": "taintsUnmatched",
    "ignored": "ignored",
}


class PodWithReservations:
    """A pod that a cycle has tried."""

    def __init__(
        self, cache: CycleInputs, profile: Profile, plugin: ReservationPlugin, tried: Tried, nodes: Sequence[str]
    ) -> None:
        """Takes a pod.

        Args:
            nodes: names, in the order of the record.
        """
        self._cache, self._profile, self._plugin, self._nodes = cache, profile, plugin, nodes
        self._placed = tried.decided.placed
        self._evaluation = tried.evaluation
        self._class = tried.evaluation.pod_class
        self._wish: Wish = wish_of(self._class)
        self._snapshot = tried.evaluation.transaction.snapshot
        state = tried.evaluation.transaction.plugin_states[plugin]
        assert isinstance(state, ReservationState), "the plugin's"
        self._state = state

    def answer(self, removed: Sequence[str]) -> dict[str, Any]:
        """Answers a case."""
        refusals = self._evaluation.refusals(self._plugin)
        if self._wish.problem:
            agree("reasons", *({node: each.reasons for node, each in refusals.items()}[node] for node in refusals))
            return {"beforePreFilter": {"code": "Error", "reasons": next(iter(refusals.values())).reasons}}
        matched = self._by_node()
        participants = [node for node in self._nodes if self._takes_part(node, matched)]
        found: dict[str, Any] = {"nodes": {node: self._prepared(node, matched) for node in self._nodes}}
        if not participants:
            return found | {"preFilter": self._nothing_to_use(refusals)}
        found["preFilter"] = SUCCESS
        tried = self._nodes
        if self._wish.affinity is not None:
            found["preFilterNodes"], tried = sorted(participants), participants
        if removed:
            refusals = self._without(removed)
        for node in tried:
            found["nodes"][node]["filter"] = status(refusals.get(node))
        passing = [node for node in tried if node not in refusals]
        if passing and not removed:
            self._score(found, passing, matched)
        return found

    def _by_node(self) -> dict[str, Sequence[ReservedCapacity]]:
        by_row = self._state.matched(self._class)
        return {node: by_row.get(self._cache.table.rows[node], ()) for node in self._nodes}

    def _there(self, node: str) -> list[ReservedCapacity]:
        """The Reservations of a node that pods may use."""
        holds = self._snapshot.holds
        there = [
            capacity
            for uid, capacity in holds.table.capacities.items()
            if uid in holds.table.assigned and holds.table.assigned[uid].node == node
        ]
        usable = [each for each in there if each.is_usable and each.reservation.is_available and holds.is_open(each)]
        return sorted(usable, key=lambda each: each.name)

    def _used(self, node: str, matched: Sequence[ReservedCapacity]) -> list[str]:
        holds = self._snapshot.holds
        return [each.name for each in self._there(node) if each not in matched and holds.use_of(each.uid).owners]

    def _takes_part(self, node: str, matched: Mapping[str, Sequence[ReservedCapacity]]) -> bool:
        if matched[node] or self._wish.affinity is not None:
            return bool(matched[node])
        return bool(self._used(node, ()))

    def _prepared(self, node: str, matched: Mapping[str, Sequence[ReservedCapacity]]) -> dict[str, Any]:
        row, snapshot = self._cache.table.rows[node], self._snapshot
        nonzero = snapshot.nonzero_requested[row]
        found: dict[str, Any] = {
            "requested": requested(self._snapshot, row),
            "nonZeroRequested": {"cpu": int(nonzero[0]), "memory": int(nonzero[1])},
            "pods": int(snapshot.pods[row]),
        }
        if diagnosis := self._diagnosis(node, row):
            found["diagnosis"] = diagnosis
        if self._takes_part(node, matched):
            found |= {
                "matched": [each.name for each in matched[node]],
                "unmatched": self._used(node, matched[node]),
                "available": {each.name: self._available(each) for each in matched[node]},
            }
        return found

    def _diagnosis(self, node: str, row: int) -> dict[str, Any]:
        name = self._wish.affinity.name if self._wish.affinity is not None else ""
        if name and not self._is_on(name, node):
            return {}
        table = self._cache.table
        there = self._there(node)
        results = Counter(decision(self._class, self._wish, each, table, row) for each in there)
        found: dict[str, Any] = {_COUNTERS[result]: count for result, count in results.items() if result in _COUNTERS}
        if owned := sum(results.values()) - results["ignored"] - results["owner"]:
            found["ownerMatched"] = owned
            if name and results["matched"]:
                found["nameMatched"] = results["matched"]
        taints = [untolerated_taint(self._wish, each) for each in there] if results["taints"] else []
        if counted := Counter(f"{{{taint.key}: {taint.value}}}" for taint in taints if taint is not None):
            found["taints"] = dict(counted)
        return found

    def _is_on(self, name: str, node: str) -> bool:
        """Returns True for the node of a Reservation, and for all nodes where there is no such Reservation."""
        table = self._snapshot.holds.table
        nodes = [
            table.assigned[uid].node
            for uid, each in table.capacities.items()
            if each.name == name and uid in table.assigned
        ]
        return not nodes or node in nodes

    def _nothing_to_use(self, refusals: Mapping[str, Refusal]) -> dict[str, Any]:
        """The outcome of PreFilter where no node has anything to correct."""
        if self._wish.affinity is None:
            agree("refusals without an affinity", {}, dict(refusals))
            return {"code": "Skip"}
        agree("refused nodes", set(self._nodes), set(refusals))
        first, *others = (each.status() for each in refusals.values())
        agree("refusals", first, *others)
        return first

    def _without(self, removed: Sequence[str]) -> dict[str, Refusal]:
        """Filters the nodes without some of their pods."""
        transaction, cache = self._evaluation.transaction, self._cache
        for row, there in sorted(cache.on.items()):
            for uid in sorted(there):
                if cache.view.pods[uid].name.partition("/")[2] in removed:
                    transaction.remove(there[uid], row)
        found = {}
        for node in self._nodes:
            row = self._cache.table.rows[node]
            fits = transaction.fits(self._profile, self._class, row)
            result = self._state.filter_at(self._class, row)
            agree("fits", fits, not result)
            if result:
                found[node] = self._evaluation.refusal(self._plugin, result)
        return found

    def _score(
        self, found: dict[str, Any], passing: Sequence[str], matched: Mapping[str, Sequence[ReservedCapacity]]
    ) -> None:
        evaluation = self._evaluation.by_profile(self._profile)
        scores = self._evaluation.scores(evaluation).get(self._plugin.name, {})
        feasible = evaluation.total >= 0
        if self._wish.is_ignored:
            found["preScore"] = {"code": "Skip"}
        else:
            found["preScore"] = SUCCESS
            self._score_nodes(found, passing, matched, scores, feasible)
        if not self._is_tie(passing[0], matched[passing[0]]):
            self._reserve(found, passing[0])

    def _is_tie(self, node: str, matched: Sequence[ReservedCapacity]) -> bool:
        """Reports whether upstream may use one of several Reservations there: the record has no Reserve then."""
        row = self._cache.table.rows[node]
        able = [each for each in matched if self._nominable(row, each, matched) == SUCCESS]
        if self._wish.is_ignored or any(each.order for each in able):
            return False
        scores = sorted(score_of(self._snapshot, self._class, each) for each in able)
        return len(scores) > 1 and scores[-1] == scores[-2]

    def _score_nodes(
        self,
        found: dict[str, Any],
        passing: Sequence[str],
        matched: Mapping[str, Sequence[ReservedCapacity]],
        scores: Mapping[str, int],
        feasible: Bools,
    ) -> None:
        found_raw, offers = self._state.raw_scores(self._class, feasible), self._state.offers(self._class)
        raw = {} if found_raw is None else dict(zip(sorted(offers), found_raw.tolist(), strict=True))
        preferred = self._state.preferred(self._class, feasible)
        if preferred >= 0:
            found["preferredNode"] = self._cache.table.names[preferred]
        for node in passing:
            row, entry = self._cache.table.rows[node], found["nodes"][node]
            entry |= {"score": raw.get(row, 0), "normalizedScore": scores.get(node, 0)}
            if matched[node]:
                nominated = offers[row].nominated
                entry["nominateFilter"] = {
                    each.name: self._nominable(row, each, matched[node]) for each in matched[node]
                }
                entry["reservationScore"] = {
                    each.name: score_of(self._snapshot, self._class, each) for each in matched[node]
                }
                entry["nominated"] = None if nominated is None else nominated.name

    def _nominable(self, row: int, capacity: ReservedCapacity, matched: Sequence[ReservedCapacity]) -> dict[str, Any]:
        lacking = lacks_with(self._snapshot, self._plugin.args, self._class, row, matched, capacity, self._wish)
        reasons = (
            (Reason("NoReservationMeetsRequest"),) if lacking is None else (*lacking.by_node, *lacking.by_reservation)
        )
        return {"code": "Unschedulable", "reasons": sorted(text(*reason) for reason in reasons)} if reasons else SUCCESS

    def _available(self, capacity: ReservedCapacity) -> dict[str, int]:
        used = self._snapshot.holds.use_of(capacity.uid).amounts
        left = {n: size - used.get(n, 0) - capacity.inner.get(n, 0) for n, size in capacity.amounts.items()}
        return shown({name: max(0, size) for name, size in left.items()})

    def _reserve(self, found: dict[str, Any], node: str) -> None:
        """Reserves on a node, as the cycle does on the one that it chooses."""
        found["reserveNode"] = node
        row = self._cache.table.rows[node]
        allocation = self._state.reserve(self._class, row)
        if isinstance(allocation, int):
            refusal = self._evaluation.refusal(self._plugin, allocation)
            found["reserve"] = {"code": "Unschedulable", "reasons": refusal.reasons}
            return
        if self._placed is not None and self._placed.node == node:
            agree("allocation", dict(self._placed.annotations), dict(allocation))
        found |= {"reserve": SUCCESS, "assumed": None}
        if marked := allocation.get(RESERVATION_ALLOCATED):
            found |= {"annotation": marked, "assumed": msgspec.json.decode(marked)["name"]}


def status(refusal: Refusal | None) -> dict[str, Any]:
    """Returns the recorded shape of a filter's result."""
    return SUCCESS if refusal is None else refusal.status()


def requested(snapshot: CycleSnapshot, row: int) -> dict[str, int]:
    """Returns the amounts that count on a node at present."""
    columns = snapshot.table.columns
    return shown({n: int(snapshot.requested[row, at]) for n, at in columns.items() if at < snapshot.requested.shape[1]})


def shown(amounts: Mapping[str, int]) -> dict[str, int]:
    """Returns amounts as the record has them: cpu and memory always, other resources where they are not 0."""
    others = {name: size for name, size in amounts.items() if size and name not in ("cpu", "memory", "pods")}
    return {"cpu": amounts.get("cpu", 0), "memory": amounts.get("memory", 0), **others}
