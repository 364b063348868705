"""Where no webhook has seen to it: an ElasticQuota that breaks a rule is marked, and its last good declaration stays in force."""

from typing import Any

import pytest

from services.quota_ledger.state.ledger_state import LedgerState
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.quota import QuotaDeclared, QuotaRejected
from shared.kube.elastic_quota import PREFIX, RESOURCES
from tests.support.quota_logs import Logs, quota, two_teams


def spec(name: str, **changed: Any) -> ObjectObserved:
    """Team `a` or another with 5 of 10 cores, and what is said otherwise of its spec or annotations."""
    observed = quota(name, "5", "10")
    observed.object["metadata"]["annotations"] = changed.pop("annotations", {})
    observed.object["spec"] |= changed
    return observed


def declared_min(logs: Logs, name: str = "a") -> dict[str, int]:
    return logs.state.projection.names.quotas[name].min


@pytest.mark.parametrize(
    ("bad", "code", "says"),
    [
        (spec("a", min={"cpu": "11"}), "minMax", "raise max or lower min"),
        (spec("a", min={"cpu": "-1"}), "negative", "min of cpu is negative"),
        (spec("a", min={"cpu": "many"}), "unreadable", "'many' is not a quantity"),
        (spec("a", min={"memory": "1Gi"}), "minMax", "min of memory is above its max"),
        (spec("a", min={"cpu": "6"}, annotations={PREFIX + "shared-weight": "3"}), "sharedWeightParse", "JSON object"),
    ],
)
def test_a_quota_that_cannot_be_keeps_its_last_good_declaration(bad: ObjectObserved, code: str, says: str) -> None:
    logs = two_teams()
    [rejected] = logs.tell("cluster", bad)
    assert isinstance(rejected, QuotaRejected)
    assert (rejected.quota, rejected.code) == ("a", code)
    assert says in rejected.reason
    assert declared_min(logs) == {"cpu": 5000}
    assert logs.tell("cluster", bad) == []  # said once
    mended = logs.tell("cluster", spec("a", min={"cpu": "6"}))
    assert mended[0] == QuotaRejected(quota="a")
    assert declared_min(logs) == {"cpu": 6000}
    assert logs.state.projection.rejected == {}


def test_going_back_to_what_is_in_force_ends_a_rejection() -> None:
    logs = two_teams()
    logs.tell("cluster", spec("a", min={"cpu": "11"}))
    assert logs.tell("cluster", quota("a", "5", "10")) == [QuotaRejected(quota="a")]


def test_a_new_quota_that_cannot_be_stays_out_of_the_tree_until_it_is_mended_or_gone() -> None:
    logs = two_teams()
    [rejected] = logs.tell("cluster", spec("c", min={"cpu": "11"}))
    assert isinstance(rejected, QuotaRejected)
    assert "c" not in logs.state.projection.trees[""].quotas
    gone = ObjectDeleted(resource=RESOURCES[0], name="quotas/c", uid="c")
    assert logs.tell("cluster", gone) == [QuotaRejected(quota="c")]
    assert any(isinstance(event, QuotaDeclared) for event in logs.tell("cluster", spec("c")))


def test_a_namespace_belongs_to_one_quota() -> None:
    logs = two_teams()
    bound = PREFIX + "namespaces"
    logs.tell("cluster", spec("a", annotations={bound: '["shop"]'}))
    [rejected] = logs.tell("cluster", spec("b", annotations={bound: '["shop"]'}))
    assert rejected == QuotaRejected(
        quota="b", code="namespaceBound", reason="quota b: namespace shop is bound to quota a"
    )


def test_a_snapshot_keeps_what_is_wrong() -> None:
    logs = two_teams()
    logs.tell("cluster", spec("a", min={"cpu": "11"}))
    again = LedgerState()
    again.restore(logs.state.encode())
    assert again.encode() == logs.state.encode()
    assert again.quotas_due == logs.state.quotas_due == {}
