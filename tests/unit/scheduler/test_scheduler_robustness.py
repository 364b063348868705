"""Faults around the scheduler, case by case: it goes on, and decides from the data that it has.

Arbitrary nonsense is in tests/property/test_absurd_clusters.py, floods of pods in test_refused_classes.py.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.plugins.node_numa_resource.node_cache import NumaCache
from shared.events import RecordedEvent
from shared.events.cluster import NodeMetricObserved, PodBound
from shared.events.log import WriterStarted
from shared.events.metrics import NodeReported, Usage
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND
from shared.kube.node import NodeMetric
from shared.runtime.config_file import ConfigFile
from tests.support.numa_machines import bound_pod, cpu_topology, reported
from tests.support.scheduling_world import (
    START_NS,
    World,
    cycles_of,
    metric,
    node,
    placements,
    pod,
    thresholds,
    unschedulable,
    use,
)

OTHER = DEFAULT_PROFILE[DEFAULT_PROFILE.index("- schedulerName") :].replace("koord-scheduler", "other", 1)
LABEL = "scheduling.koordinator.sh/scheduler-name"


def one_node(cpu: str = "4") -> World:
    world = World()
    world.add_node(node("n", cpu=cpu))
    return world


def placed_of(records: Sequence[RecordedEvent]) -> list[RecordedEvent]:
    return [record for record in records if isinstance(record.event, PodPlaced)]


# two profiles


def test_a_pod_of_two_profiles_by_its_spec_and_its_label_is_placed_once_by_the_label() -> None:
    world = one_node()
    use(world, DEFAULT_PROFILE + OTHER)
    world.add_pod(pod("p", scheduler="koord-scheduler", labels={LABEL: "other"}))
    world.read()
    records = world.cycles()
    assert placements(records) == {"p": "n"}
    (cycle,) = cycles_of(records)
    assert len(cycle.pods) == 1
    assert world.view.pods["p"].pod_class is not None
    assert world.view.pods["p"].pod_class.scheduler == "other"


def test_a_refused_pod_that_is_given_to_another_profile_is_tried_by_that_one() -> None:
    world = one_node()
    closed = thresholds(50, 0)
    use(world, closed + OTHER)
    world.report(metric("n", cpu="3"))
    world.add_pod(pod("p"))
    world.read()
    assert unschedulable(world.cycles())["p"].code == "UsageExceedsThreshold"
    world.wait(2)
    world.add_pod(pod("p", labels={LABEL: "other"}))
    world.read()
    assert placements(world.cycles()) == {"p": "n"}, "the other profile knows no thresholds"


def test_a_pod_that_is_given_to_a_scheduler_that_is_not_ours_is_left_alone_and_taken_back_when_it_returns() -> None:
    world = one_node(cpu="0")
    world.add_pod(pod("p"))
    world.read()
    world.cycles()
    world.add_pod(pod("p", labels={LABEL: "somebody"}))
    world.add_node(node("n", cpu="4"))
    world.read()
    world.wait(600)
    assert world.cycles() == []
    world.add_pod(pod("p"))
    world.read()
    assert placements(world.cycles()) == {"p": "n"}


def test_a_pod_that_changes_its_scheduler_while_its_binding_is_under_way_is_placed_only_once() -> None:
    world = one_node()
    use(world, DEFAULT_PROFILE + OTHER)
    world.add_pod(pod("p"))
    world.read()
    placed = world.cycle()[1]
    world.add_pod(pod("p", labels={LABEL: "other"}))
    world.read()
    assert world.cycles() == []
    world.answer(placed, "rejected")
    world.read()
    world.wait(2)
    assert placements(world.cycles()) == {"p": "n"}, "the first binding failed, so the other profile may"


# clocks


@pytest.mark.parametrize("minutes", [5, 60])
def test_a_scheduler_that_takes_over_with_a_clock_that_is_behind_tries_pods_after_their_backoff(minutes: int) -> None:
    world = one_node()
    world.add_pod(pod("p", cpu="8"))
    world.add_pod(pod("q"))
    world.read()
    world.answer(placed_of(world.cycles())[0], "rejected")
    world.now_ns -= minutes * 60 * SECOND
    world.view.apply(world.append("scheduling", WriterStarted(epoch=2, release="x"), None))
    world.add_node(node("n", cpu="16"))
    world.read()
    assert world.cycles() == []
    world.wait(1)
    assert placements(world.cycles()) == {"p": "n", "q": "n"}


def test_a_clock_that_is_set_back_holds_nobody_up_once_the_next_cycle_is_decided() -> None:
    world = one_node()
    world.add_pod(pod("p", cpu="8"))
    world.read()
    world.cycles()
    world.now_ns -= 600 * SECOND
    world.add_node(node("n", cpu="16"))
    world.add_pod(pod("q"))
    world.read()
    assert placements(world.cycles()) == {"q": "n"}
    world.wait(1)
    assert placements(world.cycles()) == {"p": "n"}


def test_the_state_after_a_clock_was_set_back_decides_the_same_when_it_is_loaded_anew() -> None:
    world = one_node()
    for name in ("p", "q"):
        world.add_pod(pod(name, cpu="8"))
    world.read()
    world.cycles()
    world.now_ns -= 600 * SECOND
    world.add_pod(pod("r"))
    world.add_node(node("n", cpu="32"))
    world.read()
    world.cycles()
    world.cache = None
    world.wait(1)
    assert placements(world.cycles()).keys() == {"p", "q"}


def test_the_gateways_clock_has_no_part_in_how_long_a_refused_binding_waits() -> None:
    world = one_node()
    world.add_pod(pod("p"))
    world.read()
    placed = world.cycle()[1]
    world.now_ns += 600 * SECOND  # the gateway's clock is ten minutes ahead
    world.answer(placed, "rejected")
    world.now_ns -= 600 * SECOND
    world.read()
    assert world.cycles() == []
    world.wait(1)
    assert placements(world.cycles()) == {"p": "n"}


@pytest.mark.parametrize(("seconds", "code"), [(-600, "NodeMetricExpired"), (-299, ""), (0, ""), (600, "")], ids=str)
def test_a_report_counts_by_its_own_time_behind_or_ahead_of_our_clock(seconds: int, code: str) -> None:
    world = one_node()
    use(world, thresholds(65, 95))
    world.report(metric("n", cpu="1", at_ns=START_NS + seconds * SECOND))
    world.add_pod(pod("p"))
    world.read()
    records = world.cycles()
    assert (unschedulable(records)["p"].code if code else placements(records)["p"]) == (code or "n")


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-02-31T00:00:00Z", "soon", ""])
def test_a_report_with_an_absurd_time_ends_nothing(time: str) -> None:
    world = one_node()
    use(world, thresholds(65, 95))
    read = metric("n", cpu="1")
    world.report(replace(read, status=replace(read.status, update_time=time)))
    world.add_pod(pod("p"))
    world.read()
    records = world.cycles()
    # What has no time that can be read is no report; what is from year 1 is an old one, and that from year 9999 none.
    expected = "n" if time in ("2026-02-31T00:00:00Z", "soon") else "NodeMetricExpired"
    assert (placements(records) or {"p": unschedulable(records)["p"].code}) == {"p": expected}


async def test_the_configuration_file_is_read_again_after_the_clock_was_set_back(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("first")
    file = ConfigFile(str(path), interval_s=5)
    assert (await file.read(START_NS)) == "first"
    path.write_text("second")
    assert (await file.read(START_NS + SECOND)) == "first"
    assert (await file.read(START_NS - 600 * SECOND)) == "second"


def test_events_whose_times_go_backwards_are_folded_in_the_order_of_their_seqs() -> None:
    world = one_node(cpu="1")
    world.add_pod(pod("runs", cpu="1", on="n", phase="Running"))
    world.now_ns -= 3600 * SECOND
    world.drop_pod("runs")
    world.now_ns += 1800 * SECOND
    world.add_pod(pod("p", cpu="1"))
    world.read()
    assert placements(world.cycles()) == {"p": "n"}


# metrics


def test_where_reports_stop_pods_are_refused_once_the_last_one_is_too_old_and_woken_by_the_next() -> None:
    world = one_node()
    use(world, thresholds(65, 95))
    world.report(metric("n", cpu="1"))
    world.add_pod(pod("early", cpu="100m"))
    world.read()
    assert placements(world.cycles()) == {"early": "n"}
    world.wait(301)
    world.add_pod(pod("late", cpu="100m"))
    world.read()
    assert unschedulable(world.cycles())["late"].code == "NodeMetricExpired"
    world.wait(60)
    assert world.cycles() == []
    world.report(metric("n", cpu="1", at_ns=world.now_ns))
    world.read()
    assert placements(world.cycles()) == {"late": "n"}


def test_without_any_report_pods_are_placed_by_their_requests() -> None:
    world = one_node()
    use(world, thresholds(65, 95))
    world.report(metric("n", cpu="4"))
    world.drop_report("n")
    world.add_pod(pod("p"))
    world.read()
    assert placements(world.cycles()) == {"p": "n"}


# amounts


def test_a_node_of_two_to_the_53_bytes_counts_every_one_of_them() -> None:
    world = World()
    world.add_node(node("n", cpu="10k", memory=str(2**53)))
    world.add_pod(pod("most", cpu="1", memory=str(2**53 - 1)))
    world.add_pod(pod("two", cpu="1", memory="2"))
    world.add_pod(pod("one", cpu="1", memory="1"))
    world.read()
    records = world.cycles()
    assert placements(records) == {"most": "n", "one": "n"}
    assert unschedulable(records)["two"].code == "InsufficientResource"


def test_a_machine_with_ten_thousand_cpus_allocates_each_of_them_once() -> None:
    world = World()
    world.observe(
        reported(
            "n",
            zones=2,
            cpus=5000,
            memory="1Ti",
            annotations={"node.koordinator.sh/cpu-topology": cpu_topology(2, 5000)},
        )
    )
    world.add_node(node("n", cpu="10000", memory="2Ti"))
    pods = [bound_pod(f"p{number}", cpus=2500, memory="1Gi") for number in range(5)]
    for one in pods[:2]:
        world.add_pod(one)
    world.read()
    records = world.cycles()
    assert len(placements(records)) == 2
    by_uid = {one.metadata.uid: one for one in pods}
    for record in placed_of(records):
        assert isinstance(record.event, PodPlaced)
        one = by_uid[record.event.pod_uid]
        world.answer(record)
        metadata = replace(one.metadata, annotations={**(one.metadata.annotations or {}), **record.event.annotations})
        world.add_pod(replace(one, metadata=metadata, spec=replace(one.spec, node_name="n")))
    for one in pods[2:]:
        world.add_pod(one)
    world.read()
    records = world.cycles()
    assert len(placements(records)) == 2
    assert next(iter(unschedulable(records).values())).code in ("InsufficientResource", "NotEnoughCpus")
    (numa_cache,) = (
        plugin_cache for plugin_cache in world.indexed().plugin_caches.values() if isinstance(plugin_cache, NumaCache)
    )
    cpus = [cpu for allocation in numa_cache.allocations(0) for cpu in allocation.cpus]
    assert len(cpus) == len(set(cpus)) == 10_000


@pytest.mark.parametrize("used", ["-5", "9e18", "9223372036854775807Ei", "1e999999999", "much"])
def test_a_node_that_reports_an_absurd_usage_counts_as_one_without_a_fresh_report(used: str) -> None:
    world = one_node()
    own = node("n", cpu="4")
    world.add_node(replace(own, status=replace(own.status, capacity=own.status.allocatable)))
    use(world, thresholds(65, 95))
    world.report(metric("n", cpu=used, memory=used))
    world.add_pod(pod("p"))
    world.read()
    records = world.cycles()
    if used == "much":  # unreadable: nothing is known of it, as upstream
        assert placements(records) == {"p": "n"}
    else:
        assert unschedulable(records)["p"].code == "NodeMetricExpired"


def test_a_resource_never_seen_before_is_counted_from_its_first_mention() -> None:
    world = one_node()
    world.add_pod(pod("p", extra={"example.com/new": "2"}))
    world.read()
    records = world.cycles()
    assert unschedulable(records)["p"].message == "0/1 nodes are available: 1 Insufficient example.com/new."
    world.wait(2)
    world.add_node(node("m", extra={"example.com/new": "3"}))
    world.add_pod(pod("q", extra={"example.com/new": "2"}))
    world.read()
    records = world.cycles()
    assert list(placements(records).values()) == ["m"]
    assert len(unschedulable(records)) <= 1, "the other one does not fit beside it"
    world.wait(2)
    world.add_node(node("n", extra={"example.com/new": "2"}))
    world.read()
    assert list(placements(world.cycles()).values()) == ["n"]


def test_what_anybody_may_write_into_an_annotation_refuses_that_pod_alone() -> None:
    world = one_node()
    deep = "[" * 100_000
    for number, name in enumerate(("resource-spec", "numa-topology-spec", "scheduling-hint")):
        world.add_pod(pod(f"deep{number}", annotations={f"scheduling.koordinator.sh/{name}": deep}))
    world.add_pod(pod("p"))
    world.read()
    records = world.cycles()
    assert placements(records) == {"p": "n"}
    assert {event.code for event in unschedulable(records).values()} == {"UnreadableAnnotation"}


# nodes that come and go


def test_a_node_deleted_during_the_cycle_is_rejected_by_the_gateway_and_the_pod_is_placed_again() -> None:
    world = one_node()
    world.add_pod(pod("p"))
    world.read()
    world.drop_node("n")  # in the log, not yet read
    placed = world.cycle()[1]
    assert placements([placed]) == {"p": "n"}
    world.answer(placed, "rejected")
    world.add_node(node("m"))
    world.read()
    world.wait(1)
    assert placements(world.cycles()) == {"p": "m"}


def test_a_node_that_comes_while_the_cycle_is_decided_wakes_whoever_that_cycle_refused() -> None:
    world = one_node(cpu="0")
    world.add_pod(pod("p"))
    world.read()
    world.add_node(node("m"))
    assert unschedulable(world.cycle()).keys() == {"p"}
    world.read()
    world.wait(1)
    assert placements(world.cycles()) == {"p": "m"}


def test_a_node_made_anew_under_its_name_holds_what_runs_on_it_and_no_more() -> None:
    world = one_node(cpu="2")
    world.add_pod(pod("stays", cpu="1", on="n", phase="Running"))
    world.add_pod(pod("goes", cpu="1", on="n", phase="Running"))
    world.report(metric("n", cpu="1"))
    world.read()
    world.cycles()
    world.drop_node("n")
    world.drop_report("n")
    world.drop_pod("goes")
    world.add_node(node("other", cpu="0"))
    world.read()
    world.cycles()
    world.add_node(node("n", cpu="2"))
    world.add_pod(pod("p", cpu="1"))
    world.add_pod(pod("q", cpu="1"))
    world.read()
    records = world.cycles()
    assert placements(records) == {"p": "n"}
    assert unschedulable(records).keys() == {"q"}


def test_pods_of_a_cluster_whose_nodes_all_went_wait_and_come_back_with_the_nodes() -> None:
    world = one_node()
    world.add_pod(pod("p"))
    world.read()
    world.drop_node("n")
    world.read()
    assert unschedulable(world.cycles())["p"].code == "NoNodes"
    world.wait(2)
    world.add_node(node("n"))
    world.read()
    assert placements(world.cycles()) == {"p": "n"}


# bindings


def test_a_binding_that_another_scheduler_made_first_counts_as_observed() -> None:
    world = one_node(cpu="1")
    world.add_node(node("m", cpu="1"))
    world.add_pod(pod("p", cpu="1"))
    world.read()
    placed = world.cycle()[1]
    ours = placements([placed])["p"]
    theirs = "m" if ours == "n" else "n"
    world.answer(placed, "rejected")
    world.add_pod(pod("p", cpu="1", on=theirs, phase="Running"))
    world.add_pod(pod("q", cpu="1"))
    world.read()
    world.wait(2)
    assert placements(world.cycles()) == {"q": ours}


def test_an_outcome_of_an_unknown_placement_changes_nothing() -> None:
    world = one_node()
    world.observe(PodBound(pod="d/ghost", pod_uid="ghost", node="n"))
    world.observe(NodeMetricObserved(node="ghost", object=msgspec.convert({"metadata": {"name": "ghost"}}, NodeMetric)))
    world.add_pod(pod("p"))
    world.read()
    assert placements(world.cycles()) == {"p": "n"}


def test_a_recorded_report_of_an_absurd_instant_ends_nothing_and_outranks_nothing_readable_for_ever() -> None:
    world = one_node()
    use(world, thresholds(65, 95))
    world.logs["metrics-0"] = []
    for at_ns in (2**63 - 1, -(2**63)):
        report = NodeReported(node="n", at_ns=at_ns, interval_s=60, aggregate_s=60, usage=Usage(100, 1 << 30))
        world.view.apply(world.append("metrics-0", report, None))
    world.add_pod(pod("p"))
    world.read()
    assert placements(world.cycles()) == {"p": "n"}
