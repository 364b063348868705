"""The rules behind the five cases that were not equal when they were first run; each in an input of its own."""

from typing import Any

from cli.parity.upstream.quota.admission_cases import predicted
from cli.parity.upstream.quota.quirks import ALL
from cli.parity.upstream.quota.runtime_cases import predicted as predicted_tree
from tests.support.quota_cases import add, case, change, drop, node, pod, quota, steps

KEPT = {"allow_lent_resource": "false"}
N1 = add(node("n1", "10"))


def quotas(given: dict[str, Any]) -> dict[str, Any]:
    """Quota -> its changed fields after the last step."""
    trees = predicted_tree("tree", given, ALL)["steps"][-1]["trees"]
    found: dict[str, Any] = trees.get("", {}).get("quotas", {})
    return found


def test_a_pod_that_requests_nothing_notifies_no_level() -> None:
    """A quota that came before its parent is unknown at its level until a pod requests something."""
    early = case(
        add(quota("b", "4", "2", parent="a", labels=KEPT)),
        add(quota("a", "8", "4")),
        N1,
        args={"enableMinQuotaScale": False},
    )
    assert "runtime" not in quotas(steps(early, add(pod("p", "b", "0")))).get("b", {})
    assert quotas(steps(early, add(pod("p", "b", "1"))))["b"]["runtime"] == {"cpu": 2000}


def test_a_quota_that_moves_without_pods_below_it_does_not_bring_its_min_as_demand() -> None:
    """Its new level counts no demand of it, where it counts the whole demand of one with pods."""
    old, new = (quota("b", "8", "6", parent=parent, labels=KEPT) for parent in ("a", ""))
    rest = [add(quota("c", "8", "8")), add(quota("d", "8", "2"))]
    moved = case(N1, add(quota("a", "9", "6")), add(old), *rest, change(old, new))
    assert quotas(moved)["b"]["runtime"] == {"cpu": 2727}, "its min, scaled from 6 to 6 * 10 / 22"
    used = case(N1, add(quota("a", "9", "6")), add(old), *rest, add(pod("p", "b", "1")), change(old, new))
    assert quotas(used)["b"]["runtime"] == {"cpu": 6000}


def test_a_quota_shares_in_a_resource_that_came_later_once_its_demand_changes() -> None:
    """The first level gets gpus from the second quota; the first one has no runtime in them, not even 0, at first."""
    given = case(N1, add(quota("a", "4")), add(quota("b", "cpu=4 gpu=4")))
    attempts = [
        {"pod": pod(name, "a", "9"), "registered": is_new, "reserve": False}
        for name, is_new in (("p", False), ("q", True))
    ]
    before, after = predicted("prefilter", given | {"attempts": attempts}, ALL)["attempts"]
    assert "runtime: cpu:0, used" in before["message"]
    assert "runtime: cpu:4,gpu:0, used" in after["message"]


def hints(given: dict[str, Any], *queries: tuple[dict[str, Any], dict[str, Any]], snapshot: bool = False) -> list[str]:
    questions = [{"pod": of, "event": event} for of, event in queries]
    found: list[str] = predicted("queueHint", given | {"snapshotTaken": snapshot, "queries": questions}, ALL)["hints"]
    return found


WAITS = pod("w", "a", "1")
GONE = drop(pod("p", "b", "1"))
LARGER = change(quota("b", "4"), quota("b", "8"))
SAME = change(quota("b", "4"), quota("b", "4", annotations={"x": "y"}))


def test_before_the_first_copy_an_unmanaged_pod_is_not_woken() -> None:
    managed = case(N1, add(quota("a", "4")), add(quota("b", "4")))
    unmanaged = managed | {"featureGates": ["DisableDefaultQuota"]}
    assert hints(managed, (WAITS, GONE)) == ["Queue"]
    assert hints(unmanaged, (WAITS, GONE)) == ["QueueSkip"]
    assert hints(unmanaged, (WAITS, GONE), snapshot=True) == ["QueueSkip"], "the pod that went was in another quota"


def test_before_the_first_copy_any_changed_quota_may_be_an_ancestor() -> None:
    own = case(N1, add(quota("a", "4")), add(quota("b", "4")))
    above = own | {"args": {"enableCheckParentQuota": True}}
    assert hints(own, (WAITS, LARGER)) == ["QueueSkip"]
    assert hints(above, (WAITS, LARGER), (WAITS, SAME)) == ["Queue", "QueueSkip"]
    labelled = change(*(quota("b", size, labels={"tree_id": "t"}) for size in ("4", "8")))
    assert hints(above, (WAITS, labelled)) == ["QueueSkip"], "a pod of nothing known is in the default tree"
    assert hints(above, (WAITS, LARGER), snapshot=True) == ["QueueSkip"], "now it is known to be another branch"
