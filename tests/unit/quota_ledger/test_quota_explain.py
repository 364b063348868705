"""Explanations add up and equal the decisions."""

import pytest
from hypothesis import given, settings

from cli.quota import render
from cli.quota.command import parsed
from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.accounting.verify_invariants_by_replay import verify
from services.quota_ledger.decide.admission import AdmissionRules
from services.quota_ledger.explain.explain_runtime import UnknownQuota, explain, level
from services.quota_ledger.explain.quota_overview import overview
from services.quota_ledger.explain.quota_shortfall_of_pod import explain_pod
from services.quota_ledger.explain.what_if_quota_change import changed_runtimes
from shared.errors import KoordError
from shared.events import Event, RecordedEvent
from shared.events.quota import CapacitySet, PodAttached, PodCharged, QuotaDeclared
from shared.kube.elastic_quota import DEFAULT, ROOT, DeclaredQuota
from tests.support.hypothesis_examples import examples
from tests.unit.quota_ledger.random_histories import History, histories


@settings(max_examples=examples(100), deadline=None)
@given(histories())
def test_every_step_adds_up_to_the_runtime_that_was_granted(history: History) -> None:
    tree = history.projection.trees[""]
    for parent in tree.quotas:
        for resource in tree.level_resources(parent):
            found = level(tree, parent, resource)
            assert found.surplus + found.lent == found.borrowed + found.idle
            for step in found.children:
                assert step.base + sum(step.rounds) == step.runtime
                assert step.runtime == tree.quotas[step.quota].runtime[resource]


def books_of(*events: Event, projection: LedgerProjection | None = None) -> LedgerProjection:
    report = verify([RecordedEvent("quota", seq, event, seq) for seq, event in enumerate(events, 1)], projection)
    report.projection.apply(report.projection.trees[""].compute_delta().event(""))
    return report.projection


def team(name: str, min_: int) -> QuotaDeclared:
    quota = DeclaredQuota(name=name, min={"cpu": min_}, max={"cpu": 9_000}, weight={"cpu": 9_000})
    return QuotaDeclared(quota=name, declared=quota)


def waits(uid: str, quota: str, cpu: int) -> PodAttached:
    return PodAttached(pod_uid=uid, pod=f"ns/{uid}", quota=quota, request={"cpu": cpu})


def uses(uid: str, quota: str, cpu: int) -> PodCharged:
    return PodCharged(pod_uid=uid, pod=f"ns/{uid}", quota=quota, request={"cpu": cpu})


def test_a_resource_that_max_lacks_has_no_runtime_anywhere() -> None:
    """get quotas showed a runtime of 0, and a rejection `memory:0`, as if nothing were allowed."""
    both = {"cpu": 9_000, "memory": 2**30}
    other = DeclaredQuota(name="b", min={"memory": 2**30}, max=both, weight=both)
    projection = books_of(
        CapacitySet(tree="", total={"cpu": 3_000, "memory": 2**40}),
        team("a", 1_000),
        QuotaDeclared(quota="b", declared=other),
        waits("p", "a", 4_000),
        PodAttached(pod_uid="q", pod="ns/q", quota="b", request={"memory": 2**30}),
    )
    assert "memory" in projection.trees[""].quotas["a"].runtime
    rows = {
        row.resource: (row.max, row.runtime, row.borrowed, row.lent) for row in overview(projection) if row.quota == "a"
    }
    assert rows == {"cpu": (9_000, 3_000, 2_000, 0), "memory": (None, None, 0, 0)}
    assert [row[2:5] for row in render.rows(overview(projection)) if row[:2] == ("  a", "memory")] == [("0", "-", "-")]
    assert explain(projection, "a").runtime == {"cpu": 3_000}
    text = explain_pod(projection, "p", AdmissionRules()).text
    assert "runtime: cpu:3, used: <empty>, pod's request: cpu:4" in text, text


def borrowed() -> LedgerProjection:
    """Team a uses 8 of 10 cores, 3 of them borrowed; a pod of b waits for 5."""
    return books_of(
        CapacitySet(tree="", total={"cpu": 10_000, "memory": 2**40}),
        team("a", 5_000),
        team("b", 5_000),
        waits("x", "a", 8_000),
        uses("x", "a", 8_000),
        waits("y", "b", 6_000),
    )


def test_explain_writes_the_arithmetic_out() -> None:
    projection = borrowed()
    text = render.explained(explain(projection, "a"))
    assert "a: requests 8, min 5, weight 9: 5 = 5" in text
    assert "surplus 0 + lent 0 = borrowed 0 + idle 0" in text
    assert "ns/x  uses cpu 8 " in text
    with pytest.raises(UnknownQuota, match="koord get quotas"):
        explain(projection, "c")


def test_a_quota_that_is_too_small_for_its_pods_names_its_bound_the_use_and_what_waits_first() -> None:
    first, second, *_ = render.explained(explain(borrowed(), "b")).splitlines()
    assert first == "b: runtime cpu 5, used nothing"
    assert second == (
        "  short of cpu: 0 of its runtime 5 is used, and pods that wait request 6; the runtime grows as other quotas "
        "request less"
    )
    full = books_of(
        CapacitySet(tree="", total={"cpu": 20_000}), team("a", 5_000),
        waits("x", "a", 9_000), uses("x", "a", 9_000), waits("y", "a", 1_000),
    )  # fmt: skip
    _, line, *_ = render.explained(explain(full, "a")).splitlines()
    assert line == "  short of cpu: 9 of its max 9 is used, and pods that wait request 1"


def test_why_names_the_account_that_is_short_and_who_holds_it() -> None:
    found = explain_pod(borrowed(), "y", AdmissionRules())
    assert (found.state, found.short_of, found.missing) == ("short", "b", {"cpu": 1_000})
    assert found.text.startswith("Insufficient quotas, quotaName: b")
    assert explain_pod(borrowed(), "x", AdmissionRules()).state == "used"


def test_a_pod_that_must_not_be_preempted_is_explained_by_min() -> None:
    def stays(uid: str, cpu: int) -> PodAttached:
        return PodAttached(pod_uid=uid, pod=f"ns/{uid}", quota="a", request={"cpu": cpu}, preemptible=False)

    whole = CapacitySet(tree="", total={"cpu": 10_000})
    projection = books_of(
        whole, team("a", 5_000), stays("x", 4_000), uses("x", "a", 4_000), waits("z", "a", 3_000), uses("z", "a", 3_000),
        stays("y", 2_000),
    )  # fmt: skip
    text = render.why_pod(explain_pod(projection, "y", AdmissionRules()))
    assert "Quota a is short of cpu 1.\n  held by ns/x: cpu 4\n  its min is cpu 5: only a higher one" in text
    assert "ns/z" not in text


def test_a_pod_above_the_max_of_its_quota_needs_a_higher_one() -> None:
    projection = books_of(CapacitySet(tree="", total={"cpu": 20_000}), team("a", 5_000), waits("x", "a", 12_000))
    text = render.why_pod(explain_pod(projection, "x", AdmissionRules()))
    assert "  its max is cpu 9: only a higher one makes room\n" in text


def test_pods_of_no_quota_are_not_limited_and_come_first() -> None:
    projection = books_of(
        CapacitySet(tree="", total={"cpu": 10_000}), QuotaDeclared(quota=DEFAULT, declared=DeclaredQuota(name=DEFAULT, max={"cpu": 2**63 - 1})),
        team("a", 5_000), waits("x", DEFAULT, 3_000), uses("x", DEFAULT, 3_000),
    )  # fmt: skip
    text = render.explained(explain(projection, DEFAULT))
    assert text.startswith(
        f"{DEFAULT}: not limited, used cpu 3\n\ncpu below {ROOT}: 10 - 3 that {DEFAULT} uses = 7 to share"
    )
    assert ("  " + DEFAULT, "cpu", "0", "unlimited", "unlimited", "3", "0", "0", "0") in list(
        render.rows(overview(projection))
    )


def test_what_if_changes_nothing_but_shows_the_changes() -> None:
    projection = borrowed()
    before = overview(projection)
    assert changed_runtimes(projection, parsed(("a.min.cpu=7",))) == {
        "a": {"cpu": [5000, 5834]},
        "b": {"cpu": [5000, 4166]},
    }
    assert overview(projection) == before
    rows = list(render.changes(changed_runtimes(projection, parsed(("b.min.cpu=4", "b.max.cpu=4")))))
    assert rows == [("a", "cpu", "5", "6", "+1"), ("b", "cpu", "5", "4", "-1")]
    with pytest.raises(KoordError, match=r"NAME\.min\.RESOURCE"):
        parsed(("nonsense",))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("b.max.cpu=4", "quota b: min of cpu is above its max; raise max or lower min"),
        ("a.min.cpu=10", "quota a: min of cpu is above its max; raise max or lower min"),
        ("a.min.memory=1Gi", "quota a: min has memory, and max does not; add it to max, or correct its name"),
        ("a.weight.cpu=-1", "quota a: weight of cpu is negative"),
    ],
)
def test_what_if_rejects_a_change_that_the_ledger_would_reject(change: str, reason: str) -> None:
    with pytest.raises(KoordError, match=reason):
        changed_runtimes(borrowed(), parsed((change,)))


def test_what_if_names_the_nearest_resource_for_one_that_the_quotas_do_not_have() -> None:
    words = "quota a has no resource 'cpux'; perhaps 'cpu' is meant; the quotas of its tree have cpu, memory"
    with pytest.raises(KoordError, match=words):
        changed_runtimes(borrowed(), parsed(("a.max.cpux=70",)))


def test_what_if_names_the_field_that_was_given_although_the_weight_follows_from_it() -> None:
    for change, field in (("a.max.cpu=-3", "max"), ("a.min.cpu=-1", "min")):
        with pytest.raises(KoordError, match=f"quota a: {field} of cpu is negative"):
            changed_runtimes(borrowed(), parsed((change,)), weigh_their_max=("a",))


@pytest.mark.parametrize("settings", [{"scales_min": False}, {"guarantees": True}])
def test_what_if_computes_with_the_settings_in_force(settings: dict[str, bool]) -> None:
    there = CapacitySet(tree="", total={"cpu": 8_000})
    projection = books_of(
        there, team("a", 5_000), team("b", 5_000), waits("x", "a", 8_000), uses("x", "a", 8_000), waits("y", "b", 6_000),
        projection=LedgerProjection(**settings),  # type: ignore[arg-type]
    )  # fmt: skip
    a, b = (projection.trees[""].quotas[name].runtime["cpu"] for name in "ab")
    assert a + b > 8_000  # minima or use that exceed what there is stay as they are
    assert changed_runtimes(projection, parsed(("a.min.cpu=5",))) == {}
    assert "the minima come to 10, more than there is, and stay as they are" in render.explained(
        explain(projection, "a")
    )


def test_the_tree_shows_what_there_is_and_who_borrows() -> None:
    whole, a, b = found = overview(borrowed())
    rows = list(render.rows(found))
    assert rows[0] == ("default tree", "cpu", "10", "-", "10", "8", "0", "0", "6")
    assert rows[1] == ("  a", "cpu", "5", "9", "5", "8", "0", "0", "0")
    assert (whole.quota, whole.depth) == (ROOT, 0)
    assert (render.bar(a), render.bar(b)) == ("████████████▓▓▓▓▓▓··", "▒▒▒▒▒▒▒▒▒▒▒▒········")
