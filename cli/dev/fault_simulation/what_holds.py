"""Comparison of a State with a fold that begins at the oldest kept event: what still holds is equal.

Fields that count or date what happened before that event, and pods that are gone, are not the same after such a fold
(docs/adr/0024), so it is the objects, the intents and the assignments that are compared.
"""

from operator import itemgetter
from typing import Any

import msgspec

from shared.domain.amounts import nonzero
from shared.events.intents import FieldsDesired
from shared.fold import State
from shared.runtime.rebuild import first_difference

_BASIS = frozenset({"seen", "now_ns", "config"})


def difference(service: str, found: State, expected: State) -> str | None:
    """Returns the path of the first difference; None when both hold the same."""
    view = _VIEWS.get(service)
    if view is None:
        return None
    ours, folded = view(found), view(expected)
    if service == "gateway":
        folded = _with_ended(folded, ours, found)
    return None if ours == folded else "/".join(first_difference(ours, folded))


def _gateway(state: Any) -> Any:
    """All of it, but for the basis of appends in the intents."""
    stored = msgspec.msgpack.decode(state.encode())
    return {**stored, "intents": _without_basis(stored["intents"])}


def _with_ended(folded: Any, found: Any, state: Any) -> Any:
    """Returns a fold of the gateway with the desired fields that the live State alone has, where their object is gone:
    their context does not carry them forward, and the gateway records their end at its next look.
    """
    gone = {
        (cause.context, cause.seq)
        for cause, desired in state.intents.applied.items()
        if isinstance(desired, FieldsDesired) and desired.name not in state.known.get(desired.resource, {})
    }
    applied = {context: list(rows) for context, rows in folded["intents"]["applied"].items()}
    for context, rows in found["intents"]["applied"].items():
        there = applied.get(context, [])
        if missing := [row for row in rows if row not in there and (context, row[0]) in gone]:
            applied[context] = sorted((*there, *missing), key=itemgetter(0))
    return {**folded, "intents": {**folded["intents"], "applied": applied}}


def _without_basis(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_basis(part) for name, part in value.items() if name not in _BASIS}
    return [_without_basis(part) for part in value] if isinstance(value, list) else value


def _scheduler(state: Any) -> Any:
    """Where each pod counts, and which pods wait."""
    state.read()
    pods = {}
    for uid, pod in state.pods.items():
        assigned = pod.assignment()
        pods[uid] = (
            (assigned.node, assigned.name, pod.deleting, assigned.allocation)
            if assigned is not None
            else pod.waiting(0)
        )
    return {"pods": pods, "nodes": dict.fromkeys(sorted(state.nodes))}


def _ledger(state: Any) -> Any:
    return {
        quota.name: {"used": nonzero(quota.used), "request": nonzero(quota.self_request)}
        for tree in state.projection.trees.values()
        for quota in tree.quotas.values()
    }


def _discovery(state: Any) -> Any:
    """The devices of each node, what is recorded of it, and what is desired."""
    stored = msgspec.msgpack.decode(state.encode())
    pods = {uid: (pod.pod, pod.node, pod.devices) for uid, pod in state.pods.items() if pod.is_there}
    return {"pods": pods, **{name: stored[name] for name in ("nodes", "devices", "reported", "desired_fields")}}


_VIEWS = {"gateway": _gateway, "scheduler": _scheduler, "quota-ledger": _ledger, "device-discovery": _discovery}
