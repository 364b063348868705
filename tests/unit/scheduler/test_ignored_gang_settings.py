"""Settings of gangs that are ignored."""

import pytest

from services.scheduler.configuration import config_drafts
from services.scheduler.explain.gang_status import ignored_settings
from services.scheduler.explain.waiting_order_config import rules_in_force
from shared.domain import gang
from shared.domain.ignored_gang_annotations import ignored_of_pod, ignored_of_pod_group
from shared.domain.offered_config import OfferedConfig
from tests.support.scheduling_world import World, pod

RACK = '{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather"}]}'
AWARE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig:
  - {name: Coscheduling, args: {awareNetworkTopology: true}}
  plugins:
    permit: {enabled: [{name: Coscheduling}]}
"""


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (gang.MODE, "strict", "none of Strict, NonStrict"),
        (gang.MATCH_POLICY, "once", "none of once-satisfied, only-waiting, waiting-and-running"),
        (gang.MATCH_POLICY_ALIAS, "once", f"annotation {gang.MATCH_POLICY_ALIAS} is 'once'"),
        (gang.FAILURE_POLICY, "evict", "none of Continue, Evict"),
        (gang.TOTAL, "many", "no number"),
        (gang.GROUPS, '{"a": 1}', "placed without others"),
        (gang.TOPOLOGY, "rack", "cannot be read"),
        (gang.TOPOLOGY, RACK.replace("Must", "must"), "layer 'rack' has strategy 'mustGather', which is ignored"),
    ],
)
def test_a_setting_that_is_ignored_is_named(name: str, text: str, words: str) -> None:
    [of_group] = ignored_of_pod_group({"metadata": {"annotations": {name: text}}})
    assert name in of_group
    assert words in of_group
    assert list(ignored_of_pod(None, {name: text})) == [of_group]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gang.scheduling.koordinator.sh/group", gang.GROUPS),
        ("gang.scheduling.koordinator.sh/min-availble", gang.MINIMUM),
    ],
)
def test_a_misspelt_name_of_a_setting_is_named_with_the_one_that_is_meant(name: str, meant: str) -> None:
    [of_group] = ignored_of_pod_group({"metadata": {"annotations": {name: "2", "example.com/group": "2"}}})
    assert of_group == f"annotation {name} is unknown, and has no effect; perhaps {meant!r} is meant"
    assert list(ignored_of_pod({"app": "web"}, {name: "2"})) == [of_group]


def test_a_misspelt_label_of_a_pod_is_named() -> None:
    [label] = ignored_of_pod({f"{gang.POD_GROUP_LABEL}/min-availble": "2", gang.LIGHTWEIGHT_NAME: "g"}, None)
    assert label.endswith(f"has no effect; perhaps {gang.LIGHTWEIGHT_MINIMUM!r} is meant")


def test_what_a_pod_declares_is_named_too() -> None:
    [minimum, waiting] = ignored_of_pod(None, {gang.MINIMUM: "two", gang.WAITING_TIME: "5 minutes"})
    assert "'two', which is no number" in minimum
    assert "write it as 5m0s" in waiting
    [label] = ignored_of_pod({gang.LIGHTWEIGHT_MINIMUM: "two"}, {gang.MINIMUM: "also"})
    assert label.startswith(f"label {gang.LIGHTWEIGHT_MINIMUM}")


def test_valid_settings_are_not_named() -> None:
    valid = {
        gang.MODE: "NonStrict", gang.MATCH_POLICY: "only-waiting", gang.FAILURE_POLICY: "Evict", gang.TOTAL: "4",
        gang.GROUPS: '["d/a", "d/b"]', gang.TOPOLOGY: RACK, gang.WAITING_TIME: "5m", gang.MINIMUM: "2",
    }  # fmt: skip
    assert list(ignored_of_pod(None, valid)) == []
    assert list(ignored_of_pod_group({"metadata": {"annotations": valid}})) == []
    assert list(ignored_of_pod_group({})) == []
    multiple = '{"gatherStrategy": [{"layer": "rack", "podCountMultiple": 2}]}'
    assert list(ignored_of_pod(None, {gang.TOPOLOGY: multiple})) == []


@pytest.mark.parametrize("is_aware", [False, True])
def test_a_topology_that_the_profile_does_not_read_is_named(is_aware: bool) -> None:
    world = World()
    annotations = {gang.NAME: "job", gang.MINIMUM: "2", gang.TOPOLOGY: RACK}
    world.add_pod(pod("a", annotations=annotations))
    if is_aware:
        world.append_drafts(config_drafts(world.view, OfferedConfig("file f", AWARE)))
    world.read()
    world.view.read()
    found = ignored_settings(world.view, rules_in_force(world.view), "d/job")
    assert [gang.TOPOLOGY in fault and "awareNetworkTopology" in fault for fault in found] == [True] * (not is_aware)


@pytest.mark.parametrize("minimum", [0, -2])
def test_a_minimum_that_holds_no_pod_back_is_named(minimum: int) -> None:
    [text] = ignored_of_pod_group({"spec": {"minMember": minimum}})
    assert text.startswith(f"spec.minMember is {minimum}: no pod waits for others")
    assert list(ignored_of_pod_group({"spec": {"minMember": 1}})) == []
