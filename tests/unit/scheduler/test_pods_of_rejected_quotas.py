"""Pods whose quota is rejected wait for it: the default group, where they would count otherwise, has no limit."""

import pytest

from cli.quota.render import rejected
from services.quota_ledger.explain.explain_runtime import QuotaWasRejected, explain
from services.quota_ledger.settings import LedgerSettings
from shared.events import RecordedEvent
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.instants import SECOND
from shared.kube.pod import Pod
from tests.support.scheduling_world import placements, pod, unschedulable
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota


def unreadable(name: str = "team") -> ObjectObserved:
    return quota(name, "1", "many")


def of_team(name: str) -> Pod:
    return pod(name, cpu="1", labels={QUOTA_NAME: "team"})


def cycle(world: Teams, *pods: Pod) -> list[RecordedEvent]:
    for each in pods:
        world.add_pod(each)
    world.read()
    return world.cycle()


def test_a_pod_of_a_rejected_quota_waits_with_a_reason_that_names_it_and_why() -> None:
    world = Teams(unreadable())
    recorded = cycle(world, of_team("web"), pod("free", cpu="1"))
    assert placements(recorded).keys() == {"free"}, "a pod of no quota counts in the default group, as before"
    refused = unschedulable(recorded)["web"]
    assert "its quota team is rejected, and it waits: " in refused.message
    assert "many" in refused.message


def test_it_is_placed_once_the_quota_is_corrected_and_not_tried_before() -> None:
    world = Teams(unreadable())
    cycle(world, of_team("web"), pod("free", cpu="1"))
    world.now_ns += 600 * SECOND
    world.drop_pod("free")  # releases capacity in the default group, which helps none
    world.read()
    assert world.cycle() == []
    world.observe(quota("team", "1", "10"))
    world.read()
    world.now_ns += 600 * SECOND
    assert placements(world.cycle()).keys() == {"web"}
    assert world.used("team") == 1000


def test_it_counts_in_the_default_group_once_the_rejected_object_is_deleted() -> None:
    world = Teams(unreadable())
    cycle(world, of_team("web"))
    bad = unreadable()
    world.observe(ObjectDeleted(resource=bad.resource, name=bad.name, uid=bad.uid))
    world.read()
    world.now_ns += 600 * SECOND
    assert placements(world.cycle()).keys() == {"web"}


def test_a_quota_that_was_valid_before_stays_in_force() -> None:
    world = Teams(quota("team", "1", "10"))
    world.observe(unreadable())
    assert placements(cycle(world, of_team("web"))).keys() == {"web"}
    assert world.used("team") == 1000


def test_pods_of_a_namespace_wait_for_the_rejected_quota_of_that_name() -> None:
    bad = unreadable("d")
    bad.object["metadata"]["namespace"] = "d"
    world = Teams(bad)
    recorded = cycle(world, pod("web", cpu="1"))
    assert placements(recorded) == {}
    assert "its quota d is rejected" in unschedulable(recorded)["web"].message


def test_by_an_explicit_setting_they_count_in_the_default_group() -> None:
    world = Teams(unreadable(), settings=LedgerSettings(rejected_quota_waits=False))
    assert placements(cycle(world, of_team("web"))).keys() == {"web"}


@pytest.mark.parametrize("label", ["absent", "team"])
def test_a_label_that_names_no_object_at_all_leads_to_the_default_group(label: str) -> None:
    world = Teams(quota("other", "1", "10"))
    assert placements(cycle(world, pod("web", cpu="1", labels={QUOTA_NAME: label}))).keys() == {"web"}


def test_the_tree_and_the_explanation_name_the_rejected_quota_with_the_reason() -> None:
    world = Teams(unreadable(), quota("other", "1", "10"))
    world.observe(unreadable("other"))
    world.read()
    projection = world.ledger.projection
    other, team = rejected(projection)
    assert team.text.startswith("Quota team is rejected, and its pods wait: ")
    assert other.text.startswith("Quota other is rejected, and its last valid declaration stays in force: ")
    assert "many" in team.text
    with pytest.raises(QuotaWasRejected, match="quota team is rejected, so it has no runtime"):
        explain(projection, "team")
