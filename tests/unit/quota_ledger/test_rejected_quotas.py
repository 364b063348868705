"""An ElasticQuota that breaks a rule is rejected without a webhook, too, and its last valid declaration stays."""

from typing import Any

import pytest

from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.quota import QuotaDeclared, QuotaRejected
from shared.kube.elastic_quota import PREFIX, RESOURCES, ROOT
from tests.support.quota_logs import Logs, node, quota, two_teams


def spec(name: str, **changed: Any) -> ObjectObserved:
    """Team `a` or another with 5 of 10 cores, and a changed spec or annotations."""
    observed = quota(name, "5", "10")
    observed.object["metadata"]["annotations"] = changed.pop("annotations", {})
    observed.object["spec"] |= changed
    return observed


def declared_min(logs: Logs, name: str = "a") -> dict[str, int]:
    return logs.state.projection.lookup.quotas[name].min


@pytest.mark.parametrize(
    ("bad", "code", "text"),
    [
        (spec("a", min={"cpu": "11"}), "minMax", "raise max or lower min"),
        (spec("a", max=[1]), "unreadable", "is not a quantity"),
        (spec("a", min={"cpu": "-1"}), "negative", "min of cpu is negative"),
        (spec("a", min={"cpu": "many"}), "unreadable", "'many' is not a quantity"),
        (
            spec("a", min={"memori": "1Gi"}),
            "minMax",
            "min has memori, and max does not; add it to max, or correct its name; perhaps 'memory' is meant",
        ),
        (spec("a", min={"cpu": "6"}, annotations={PREFIX + "shared-weight": "3"}), "sharedWeightParse", "JSON object"),
    ],
)
def test_a_quota_that_cannot_be_keeps_its_last_good_declaration(bad: ObjectObserved, code: str, text: str) -> None:
    logs = two_teams()
    [rejected] = logs.append("cluster", bad)
    assert isinstance(rejected, QuotaRejected)
    assert (rejected.quota, rejected.code) == ("a", code)
    assert text in rejected.reason
    assert declared_min(logs) == {"cpu": 5000}
    assert logs.append("cluster", bad) == []  # recorded once
    mended = logs.append("cluster", spec("a", min={"cpu": "6"}))
    assert mended[0] == QuotaRejected(quota="a")
    assert declared_min(logs) == {"cpu": 6000}
    assert logs.state.projection.rejected == {}


FAULTS = {PREFIX + "shared-weight": '{"cpu": "x"}', PREFIX + "namespaces": "shop"}


@pytest.mark.parametrize(
    ("bad", "code", "expected"),
    [
        (
            spec("a", min={"cpu": "11", "memori": "1Gi"}, annotations=FAULTS),
            "sharedWeightParse",
            ("shared-weight is", "min of cpu is above its max", "min has memori", "namespaces is 'shop'"),
        ),
        (
            spec("a", min={"cpu": "many"}, max={"cpu": "2x", "memory": "1Gi"}, annotations=FAULTS),
            "unreadable",
            ("quota a: min of cpu: 'many' is not", "max of cpu: '2x' is not", "namespaces is 'shop'"),
        ),
    ],
)
def test_all_faults_of_a_quota_are_named_at_once(bad: ObjectObserved, code: str, expected: tuple[str, ...]) -> None:
    """A user corrected one fault to learn of the next."""
    logs = two_teams()
    [rejected] = logs.append("cluster", bad)
    assert isinstance(rejected, QuotaRejected)
    assert rejected.code == code
    parts = rejected.reason.split("; also ")
    assert len(parts) == len(expected), rejected.reason
    for part, text in zip(parts, expected, strict=True):
        assert text in part
    assert logs.append("cluster", bad) == []


def test_a_quota_below_a_parent_that_is_none_names_its_own_faults_too() -> None:
    logs = two_teams()
    child = quota("c", "1", "10")
    child.object["metadata"]["labels"] |= {PREFIX + "parent": "a", PREFIX + "is-parnet": "true"}
    [rejected] = logs.append("cluster", child)
    assert isinstance(rejected, QuotaRejected)
    assert rejected.reason.startswith("quota c: its parent a is not marked is-parent; mark that; also label ")
    assert "is-parnet is unknown" in rejected.reason


@pytest.mark.parametrize(("name", "counts"), [("is-parent", "false"), ("allow-lent-resource", "true")])
def test_a_switch_that_is_neither_true_nor_false_is_named(name: str, counts: str) -> None:
    """`is-parent: "yes"` was false without a word."""
    logs = two_teams()
    observed = quota("a", "5", "10")
    observed.object["metadata"]["labels"] |= {PREFIX + name: "yes"}
    logs.append("cluster", observed)
    [fault] = logs.state.projection.lookup.quotas["a"].ignored
    assert fault == f"label {PREFIX}{name} is 'yes' and counts as '{counts}'; give 'true' or 'false'"


def test_going_back_to_what_is_in_force_ends_a_rejection() -> None:
    logs = two_teams()
    logs.append("cluster", spec("a", min={"cpu": "11"}))
    assert logs.append("cluster", quota("a", "5", "10")) == [QuotaRejected(quota="a")]


def test_a_new_quota_that_cannot_be_stays_out_of_the_tree_until_it_is_mended_or_gone() -> None:
    logs = two_teams()
    [rejected] = logs.append("cluster", spec("c", min={"cpu": "11"}))
    assert isinstance(rejected, QuotaRejected)
    assert "c" not in logs.state.projection.trees[""].quotas
    gone = ObjectDeleted(resource=RESOURCES[0], name="quotas/c", uid="c")
    assert logs.append("cluster", gone) == [QuotaRejected(quota="c")]
    assert any(isinstance(event, QuotaDeclared) for event in logs.append("cluster", spec("c")))


def test_a_namespace_belongs_to_one_quota() -> None:
    logs = two_teams()
    bound = PREFIX + "namespaces"
    logs.append("cluster", spec("a", annotations={bound: '["shop"]'}))
    [rejected] = logs.append("cluster", spec("b", annotations={bound: '["shop"]'}))
    assert rejected == QuotaRejected(
        quota="b", code="namespaceBound", reason="quota b: namespace shop is bound to quota a"
    )


def test_a_snapshot_keeps_what_is_wrong() -> None:
    logs = two_teams()
    logs.append("cluster", spec("a", min={"cpu": "11"}))
    again = LedgerState()
    again.restore(logs.state.encode())
    assert again.encode() == logs.state.encode()
    assert again.quotas_to_update == logs.state.quotas_to_update == {}


@pytest.mark.parametrize("check_quotas", [True, False])
def test_parents_that_form_a_cycle_are_rejected_even_where_quotas_are_not_checked(check_quotas: bool) -> None:
    logs = Logs(LedgerSettings(check_quotas=check_quotas))
    logs.append("cluster", node("n1", "10"), quota("a", "5", "10", is_parent=True))
    logs.append("cluster", quota("b", "2", "10", "a", is_parent=True), quota("c", "2", "10", "b", is_parent=True))
    [rejected] = logs.append("cluster", quota("a", "1", "10", "c", is_parent=True))
    assert isinstance(rejected, QuotaRejected)
    assert (rejected.quota, rejected.code) == ("a", "parentCycle")
    assert "a, c, b, a" in rejected.reason
    assert declared_min(logs) == {"cpu": 5000}, "the last good declaration stays in force"
    assert QuotaRejected(quota="a") in logs.append("cluster", quota("a", "6", "10", is_parent=True))


def test_of_two_quotas_that_name_each_other_as_parent_the_second_is_rejected() -> None:
    logs = Logs(LedgerSettings(check_quotas=False))
    events = logs.append("cluster", quota("a", "1", "10", "b"), quota("b", "1", "10", "a"), quota("c", "1", "10", "c"))
    rejected = {event.quota: event.code for event in events if isinstance(event, QuotaRejected)}
    assert rejected == {"b": "parentCycle", "c": "parentCycle"}
    assert any(isinstance(event, QuotaDeclared) for event in logs.append("cluster", quota("b", "1", "10")))
    assert [info.name for info in logs.state.projection.trees[""].path("a")] == ["a", "b", ROOT]


def test_quotas_that_name_each_other_as_parent_are_each_rejected_with_the_names_of_the_cycle() -> None:
    logs = Logs(LedgerSettings())
    logs.append("cluster", node("n1", "10"))
    logs.append("cluster", quota("a", "1", "10", "b", is_parent=True), quota("b", "1", "10", "a", is_parent=True))
    logs.append("cluster", quota("below", "1", "10", "a"))
    advice = "choose a parent that is not below it"
    assert logs.state.projection.rejected == {
        "a": f"quota a: its parents form a cycle (a, b, a); {advice}",
        "b": f"quota b: its parents form a cycle (b, a, b); {advice}",
        "below": "quota below: its parent a is rejected; correct that first",
    }
    logs.append("cluster", quota("b", "1", "10", is_parent=True))
    assert logs.state.projection.rejected == {}
    assert [info.name for info in logs.state.projection.trees[""].path("below")] == ["below", "a", "b", ROOT]


@pytest.mark.parametrize("parent", [spec("c", min={"cpu": "11"}), spec("c", min={"cpu": "many"})])
def test_a_quota_below_a_rejected_one_names_that_and_below_an_absent_one_that_it_does_not_exist(
    parent: ObjectObserved,
) -> None:
    logs = two_teams()
    logs.append("cluster", quota("x", "1", "10", "c"))
    assert logs.state.projection.rejected == {"x": "quota x: its parent c does not exist; create that first"}
    logs.append("cluster", parent)
    assert logs.state.projection.rejected["x"] == "quota x: its parent c is rejected; correct that first"
    logs.append("cluster", ObjectDeleted(resource=RESOURCES[0], name="quotas/c", uid="c"))
    assert logs.state.projection.rejected == {"x": "quota x: its parent c does not exist; create that first"}
