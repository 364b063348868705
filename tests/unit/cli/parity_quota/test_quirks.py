"""Each quirk of upstream's has an input in which it changes the answer alone, and a rule that recognises that input."""

from typing import Any

import pytest

from cli.parity.case_domain import Rule
from cli.parity.upstream.quirk_rules import rules_of
from cli.parity.upstream.quota import admission_cases, runtime_cases
from cli.parity.upstream.quota.quirks import NONE, Quirk
from shared.kube.elastic_quota import DEFAULT
from tests.support.quota_cases import add, case, change, drop, node, pod, quota

N1 = add(node("n1", "cpu=10 memory=10"))


def _child(name: str, **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"floor": {}, "request": {}, "max": {}, "sharedWeight": {}, "guaranteed": {}}
    return {"name": name, "allowLent": True, **empty, **more}


VAST = {"memory": str(2**62)}
WIDE = [_child(name, request={"memory": "9"}, sharedWeight=VAST) for name in "ab"]
PRECISE = {
    "scaleEnabled": True,
    "total": {"memory": str(2**60 - 1)},
    "children": [{"name": "a", "min": {"memory": str(2**60)}}],
}
LATE = pod("p", "late", "1")
KEPT = {"allow_lent_resource": "false"}
IDLE = [add(quota("a", "8", "6", labels=KEPT)), add(quota("b", "8", "6", labels=KEPT)), add(quota("c", "8", "4"))]
GREEDY = [add(quota("a", "8", "8")), add(pod("p", "a", "8")), add(pod("q", "", "4"))]
OVER = [
    N1,
    add(quota("a", "cpu=2 gpu=2")),
    *(
        add(pod(f"p{n}", "a", request, on="n1", startTime=f"2026-07-2{n}T00:00:00Z"))
        for n, request in enumerate(("gpu=2", "gpu=2", "cpu=1"), 1)
    ),
]
LEAVING = [
    N1,
    add(quota("a", "2")),
    add(pod("p", "a", "2", on="n1", is_leaving=True, startTime="2026-07-21T00:00:00Z")),
    add(pod("q", "a", "2", on="n1", startTime="2026-07-22T00:00:00Z")),
]
FULL = [
    add(node("n1", "cpu=10 pods=9")),
    add(quota("a", "2")),
    add(pod("p", "a", "2", on="n1", startTime="2026-07-21T00:00:00Z")),
]

ACTS: dict[Quirk, tuple[str, dict[str, Any]]] = {
    Quirk.TAKES_ANY_QUOTA: ("tree", case(N1, add(quota("a", "4", "5")))),
    Quirk.FORGETS_CHILDREN: (
        "tree",
        case(N1, add(quota("a", "4")), add(quota("b", "4", parent="a")), drop(quota("a", "4"))),
    ),
    Quirk.KEEPS_RESOURCES: ("tree", case(N1, drop(node("n1", "cpu=10 memory=10")))),
    Quirk.GROUPS_COMPETE: (
        "tree",
        case(
            add(node("n1", "10")),
            *GREEDY,
            add(quota(DEFAULT, "4")),
            change(pod("q", "", "4"), pod("q", "", "3", version="2")),
            add(quota("b", "9")),
            add(pod("r", "b", "9")),
        ),
    ),
    Quirk.FLOAT_SCALING: ("scaleMin", PRECISE),
    Quirk.WEIGHTS_WRAP: ("redistribute", {"resources": ["memory"], "total": {"memory": "10"}, "children": WIDE}),
    Quirk.STALE_DEMAND: ("tree", case(add(node("n1", "10")), *IDLE)),
    Quirk.WHOLE_DELTA: (
        "tree",
        case(
            N1,
            add(quota("org", "9")),
            add(quota("a", "3", parent="org")),
            add(quota("b", "3", parent="org")),
            add(pod("p", "a", "5")),
            add(pod("q", "b", "2")),
            drop(quota("a", "3", parent="org")),
        ),
    ),
    Quirk.LATE_HOMES: ("tree", case(N1, add(LATE), add(quota("late", "4")))),
    Quirk.COUNTS_ENDED: ("tree", case(N1, add(quota("a", "4")), add(pod("p", "a", "1", on="n1", phase="Succeeded")))),
    Quirk.FREES_BOUND: (
        "tree",
        case(
            N1,
            add(quota("a", "4")),
            add(pod("p", "a", "1", on="n1")),
            {"type": "unreserve", "pod": pod("p", "a", "1", on="n1")},
        ),
    ),
    Quirk.CURRENT_MASK: (
        "tree",
        case(
            N1,
            add(quota("a", "cpu=4 memory=4")),
            add(pod("p", "a", "cpu=1 memory=1")),
            change(quota("a", "cpu=4 memory=4"), quota("a", "cpu=4")),
            drop(pod("p", "a", "cpu=1 memory=1")),
        ),
    ),
    Quirk.FIRST_SEEN: (
        "tree",
        case(
            N1,
            add(LATE),
            change(LATE, pod("p", "late", "3", version="2")),
            add(quota("late", "4")),
            {"type": "migrateDefault"},
        ),
    ),
    Quirk.MASKED_VICTIMS: ("revoke", case(*OVER)),
    Quirk.REVOKES_LEAVING: ("revoke", case(*LEAVING)),
    Quirk.HINTS_BY_RELATION: (
        "queueHint",
        case(*FULL)
        | {"snapshotTaken": True, "queries": [{"pod": pod("w", "a", "3"), "event": drop(pod("p", "a", "2", on="n1"))}]},
    ),
    Quirk.PREEMPTS_ON_A_NODE: ("preempt", case(*FULL) | {"pdbs": [], "pod": pod("w", "a", "1", priority=9)}),
}

_OF_RUNTIME = ("tree", "scaleMin", "redistribute")


def rules(op: str) -> dict[str, Rule]:
    predicted = runtime_cases.predicted if op in _OF_RUNTIME else admission_cases.predicted
    return {rule.section: rule for rule in rules_of(predicted, Quirk)}


def test_every_quirk_has_its_input() -> None:
    assert set(ACTS) == set(Quirk)


@pytest.mark.parametrize("quirk", ACTS)
def test_a_quirk_is_recognised_where_it_acts(quirk: Quirk) -> None:
    op, given = ACTS[quirk]
    assert rules(op)[quirk.value].recognises(op, given)


def test_no_rule_recognises_what_production_and_upstream_answer_alike() -> None:
    given = case(N1, add(quota("a", "8", "4")), add(pod("p", "a", "6")))
    assert [rule.section for rule in rules("tree").values() if rule.recognises("tree", given)] == []


def last(given: dict[str, Any], quirks: frozenset[Quirk]) -> dict[str, Any]:
    """Quota -> its changed fields after the last step, of the default tree."""
    quotas: dict[str, Any] = runtime_cases.predicted("tree", given, quirks)["steps"][-1]["trees"][""]["quotas"]
    return quotas


def test_a_level_shares_by_the_demand_of_its_last_notification() -> None:
    """Minima of 16 shrink to 10: 3.75, 3.75 and 2.5; the last is lent to the others where their min is demand."""
    _, given = ACTS[Quirk.STALE_DEMAND]
    assert last(given, NONE)["a"]["runtime"] == {"cpu": 5000}
    assert last(given, frozenset({Quirk.STALE_DEMAND}))["a"]["runtime"] == {"cpu": 3750}


def test_a_removed_quota_takes_what_it_never_gave() -> None:
    _, given = ACTS[Quirk.WHOLE_DELTA]
    assert last(given, NONE)["org"]["childRequest"] == {"cpu": 2000}
    assert last(given, frozenset({Quirk.WHOLE_DELTA}))["org"].get("childRequest") is None
