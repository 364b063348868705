"""Revocation takes a gang as a whole, or only members beyond its minimum."""

import pytest

from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from shared.domain.gang import GROUPS, LIGHTWEIGHT_MINIMUM, LIGHTWEIGHT_NAME, POD_GROUP_LABEL
from shared.events import Event
from shared.events.cluster import ObjectDeleted, ObjectObserved, PodObserved
from shared.events.intents import EvictionRequested
from shared.events.quota import RevocationDecided
from shared.kube.elastic_quota import PREEMPTIBLE
from shared.kube.instants import SECOND
from shared.kube.resource_names import POD_GROUPS
from tests.support.quota_logs import Logs, labelled, node, pod, quota


def overused(*events: Event) -> Logs:
    """Quota a may use 5 of 10 cores."""
    logs = Logs(LedgerSettings(revoke=True, revoke_after_s=10))
    logs.append("cluster", node("n1", "10"), quota("a", "5", "10"), quota("b", "5", "10"), pod("wait", "b", "5"))
    logs.append("cluster", *events)
    return logs


def revoked(logs: Logs) -> tuple[list[str], list[Event]]:
    """Returns the uids of a revocation, and all its events."""
    logs.now_ns += 11 * SECOND
    events = logs.append("cluster", node("n1", "10"))
    [decided] = [event for event in events if isinstance(event, RevocationDecided)]
    evicted = [event.pod_uid for event in events if isinstance(event, EvictionRequested)]
    assert list(decided.pods) == evicted
    return evicted, events


def member(name: str, of: str = "a", cpu: str = "2", gang: str = "train", priority: int = 0) -> PodObserved:
    return labelled(pod(name, of, cpu, at="n1", priority=priority), **{POD_GROUP_LABEL: gang})


def light_member(name: str, minimum: int, priority: int = 0) -> PodObserved:
    labels = {LIGHTWEIGHT_NAME: "light", LIGHTWEIGHT_MINIMUM: str(minimum)}
    return labelled(pod(name, "a", "2", at="n1", priority=priority), **labels)


def pod_group(name: str, minimum: int, groups: str = "") -> ObjectObserved:
    metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": {GROUPS: groups} if groups else {}}
    raw = {"metadata": metadata, "spec": {"minMember": minimum}}
    return ObjectObserved(resource=POD_GROUPS, name=f"ns/{name}", uid=name, object=raw)


def test_a_gang_that_cannot_lose_a_member_is_revoked_as_a_whole() -> None:
    logs = overused(member("g1"), member("g2"), member("g3"), pod("x", "a", "1", at="n1", priority=5))
    logs.append("cluster", pod_group("train", 3))
    evicted, events = revoked(logs)
    assert evicted == ["g1", "g2", "g3"]
    reasons = {event.reason for event in events if isinstance(event, EvictionRequested)}
    assert reasons == {"quota a uses more than its runtime; gang ns/train ends as a whole"}


def test_members_beyond_the_minimum_are_revoked_alone() -> None:
    logs = overused(*(member(f"g{number}") for number in range(4)), pod_group("train", 2))
    assert revoked(logs)[0] == ["g1", "g0"]


def test_the_minimum_may_stand_in_the_labels_of_the_members() -> None:
    logs = overused(*(light_member(f"g{number}", 3) for number in range(4)))
    assert revoked(logs)[0] == ["g1", "g2", "g3", "g0"]


def test_a_gang_is_as_important_as_its_most_important_member() -> None:
    lowest, highest = member("g1", priority=0), member("g2", priority=9)
    logs = overused(lowest, highest, pod("x", "a", "2", at="n1", priority=5), pod_group("train", 2))
    assert revoked(logs)[0] == ["x"]


def test_a_gang_stays_where_more_important_pods_have_to_be_revoked_anyway_and_are_enough() -> None:
    gang = [member(f"g{number}", cpu="1") for number in range(2)]
    logs = overused(*gang, pod("x", "a", "5", at="n1", priority=5), pod_group("train", 2))
    evicted, _ = revoked(logs)
    assert evicted == ["g0", "g1"]
    logs = overused(*gang, pod("x", "a", "6", at="n1", priority=5), pod_group("train", 2))
    assert revoked(logs)[0] == ["x"]


def test_a_gang_with_a_member_that_is_not_preemptible_is_not_ended() -> None:
    kept = labelled(member("g1"), **{PREEMPTIBLE: "false"})
    logs = overused(kept, member("g2"), member("g3"), pod("x", "a", "1", at="n1", priority=5))
    logs.append("cluster", pod_group("train", 3))
    assert revoked(logs)[0] == ["x"]


@pytest.mark.parametrize("is_mutual", [True, False])
def test_gangs_of_a_group_end_together_also_those_of_other_quotas(is_mutual: bool) -> None:
    groups = '["ns/train", "ns/data"]'
    logs = overused(*(member(f"g{number}") for number in range(3)), member("d", of="b", cpu="1", gang="data"))
    logs.append("cluster", pod_group("train", 3, groups), pod_group("data", 1, groups if is_mutual else ""))
    assert revoked(logs)[0] == ["g0", "g1", "g2", *(["d"] if is_mutual else [])]


def test_without_its_pod_group_a_gang_is_a_number_of_pods() -> None:
    logs = overused(member("g1"), member("g2"), member("g3"), pod_group("train", 3))
    logs.append("cluster", ObjectDeleted(resource=POD_GROUPS, name="ns/train", uid="train"))
    assert revoked(logs)[0] == ["g1"]


def test_a_snapshot_holds_gangs() -> None:
    logs = overused(member("g1"), member("g2"), light_member("l1", 1))
    logs.append("cluster", pod_group("train", 2))
    restored = LedgerState()
    restored.restore(logs.state.encode())
    assert restored.encode() == logs.state.encode()
    assert restored.pod_groups == logs.state.pod_groups != {}
    logs.state = restored
    assert revoked(logs)[0] == ["g1", "g2"]
