"""Cycles: which node a pod gets, what is recorded, and that a batch places as one-by-one would."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.tie_break import name_hash
from services.scheduler.configuration import config_of, read_config
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.framework.plugin_base import MAX_SCORE
from services.scheduler.framework.plugin_spec import Normalize
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Cause
from shared.events.scheduling import CycleDecided, PodPlaced
from shared.kube.node import Taint
from shared.kube.pod import Affinity, NodeAffinity, PreferredNodeTerm, Toleration
from shared.kube.selectors import NodeSelectorTerm, Requirement
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import (
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

GIB = 1 << 30


def test_the_emptiest_node_is_chosen_and_the_cycle_records_why() -> None:
    world = World()
    world.add_node(node("small", cpu="2"))
    world.add_node(node("large", cpu="16", memory="64Gi"))
    world.add_pod(pod("p", cpu="1", memory="1Gi"))
    world.read()
    records = world.cycle()
    assert placements(records) == {"p": "large"}
    (cycle,) = cycles_of(records)
    assert (cycle.cycle, cycle.now_ns, cycle.seen) == (1, world.now_ns, {"cluster": 3})
    (evaluated,) = cycle.classes
    assert (evaluated.nodes, evaluated.feasible, evaluated.rejected) == (2, 2, ())
    assert [best.node for best in evaluated.best] == ["large", "small"]
    # cpu (16000-1000)*100/16000 = 93, memory (64-1)*100/64 = 98, (93+98)/2 = 95; untainted nodes get 3 * 100;
    # 1/16 of the cpu and 1/64 of the memory are used: (1 - (1/16 - 1/64) / 2) * 100 = 97.
    assert evaluated.best[0].plugin_scores == {
        "TaintToleration": 3 * MAX_SCORE, "NodeAffinity": 0, "NodeResourcesFit": 95, "LoadAwareScheduling": 0,
        "NodeResourcesBalancedAllocation": 97, "NodeNUMAResource": 95,
    }  # fmt: skip
    placed = records[1].event
    assert isinstance(placed, PodPlaced)
    assert placed.request == {"cpu": 1000, "memory": GIB}
    assert placed.score == 587
    assert records[1].cause == Cause("cluster", 3)


def test_the_worked_example_of_the_readme() -> None:
    world = World()
    world.add_node(node("a"))
    world.add_node(node("b"))
    world.add_pod(pod("runs", cpu="600m", memory="2Gi", on="a", phase="Running"))
    world.add_pod(pod("p", cpu="500m", memory="1Gi"))
    world.read()
    assert totals(world) == {"b": 574, "a": 529}
    world.report(metric("a", cpu="500m", memory="2Gi"))
    world.report(metric("b", cpu="3500m", memory="7Gi"))
    world.read()
    assert totals(world) == {"a": 585, "b": 576}


def totals(world: World) -> dict[str, int]:
    """Node -> total of the next decision, the best first."""
    decided = decide(world.indexed(), world.now_ns, 1)[0].event
    assert isinstance(decided, CycleDecided)
    return {best.node: best.score for best in decided.classes[0].best}


def test_a_busy_node_is_refused_and_a_calmer_report_wakes_the_pod() -> None:
    world = World()
    use(world, thresholds(75, 85))
    world.add_node(node("hot", cpu="10"))
    world.report(metric("hot", cpu="8"))
    world.add_pod(pod("p", cpu="1"))
    world.read()
    records = world.cycle()
    assert placements(records) == {}
    (reason,) = cycles_of(records)[0].classes[0].rejected
    assert (reason.plugin, reason.code, reason.detail, reason.nodes) == (
        "LoadAwareScheduling", "UsageExceedsThreshold", "cpu", 1,
    )  # fmt: skip
    assert unschedulable(records)["p"].code == "UsageExceedsThreshold"
    assert unschedulable(records)["p"].message == "0/1 nodes are available: 1 node(s) cpu usage exceed threshold."
    world.wait(2)
    assert world.cycle() == [], "nothing has changed"
    world.report(metric("hot", cpu="2", at_ns=world.now_ns))
    world.read()
    assert placements(world.cycle()) == {"p": "hot"}


def test_a_report_that_ends_no_reason_adds_no_line_to_the_log() -> None:
    world = World()
    use(world, thresholds(75, 85))
    world.add_node(node("hot", cpu="10"))
    world.report(metric("hot", cpu="8"))
    for number in range(50):
        world.add_pod(pod(f"p{number}", cpu="1"))
    world.read()
    world.cycles()
    for _ in range(5):
        world.wait(30)
        world.report(metric("hot", cpu="9", at_ns=world.now_ns))
        world.read()
        assert world.cycle() == []


def test_a_condition_is_written_once_while_its_reason_stays_the_same() -> None:
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("p", cpu="2"))
    world.read()
    assert unschedulable(world.cycle())["p"].message == "0/1 nodes are available: 1 Insufficient cpu."
    world.wait(301)
    again = world.cycle()
    assert cycles_of(again)[0].pods[0].pod_uid == "p"
    assert unschedulable(again) == {}
    assert world.view.pods["p"].attempts == 2


def test_a_room_that_is_freed_takes_one_pod_and_refuses_one() -> None:
    """The rest of the class learns from the one that was refused, so a release costs two lines and not a thousand."""
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("runs", cpu="1", on="n", phase="Running"))
    for number in range(100):
        world.add_pod(pod(f"p{number}", cpu="1"))
    world.read()
    world.cycles()
    world.wait(20)
    world.drop_pod("runs")
    world.read()
    (cycle,) = cycles_of(world.cycles())
    assert [bool(outcome.node) for outcome in cycle.pods] == [True, False]


def test_nodes_without_room_are_named_by_every_resource_that_is_short() -> None:
    world = World()
    world.add_node(node("n", cpu="1", memory="1Gi", pods="0"))
    world.add_pod(pod("p", cpu="2", memory="2Gi", extra={"nvidia.com/gpu": "1"}))
    world.read()
    records = world.cycle()
    rejected = cycles_of(records)[0].classes[0].rejected
    assert {(entry.code, entry.detail) for entry in rejected} == {
        ("TooManyPods", ""), ("InsufficientResource", "cpu"), ("InsufficientResource", "memory"),
        ("InsufficientResource", "nvidia.com/gpu"),
    }  # fmt: skip
    assert unschedulable(records)["p"].message == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Insufficient nvidia.com/gpu, 1 Too many pods."
    )


def test_a_cluster_without_nodes_is_the_reason() -> None:
    world = World()
    world.add_pod(pod("p"))
    world.read()
    records = world.cycle()
    assert unschedulable(records)["p"].code == "NoNodes"
    assert unschedulable(records)["p"].message == "0/0 nodes are available."
    world.wait(2)
    world.add_node(node("n"))
    world.read()
    assert placements(world.cycle()) == {"p": "n"}


def test_later_pods_of_a_class_that_no_longer_fit_have_an_evaluation_of_their_own() -> None:
    world = World()
    world.add_node(node("n", cpu="2"))
    for name in ("a", "b", "c"):
        world.add_pod(pod(name, cpu="1"))
    world.read()
    (cycle,) = cycles_of(world.cycle())
    assert [(outcome.pod_uid, outcome.node, outcome.class_index) for outcome in cycle.pods] == [
        ("a", "n", 0), ("b", "n", 0), ("c", "", 1),
    ]  # fmt: skip
    assert [evaluated.feasible for evaluated in cycle.classes] == [1, 0]


def test_a_pod_whose_requests_cannot_be_read_gets_a_condition_and_ends_nothing() -> None:
    world = World()
    world.add_node(node("n"))
    world.add_pod(pod("bad", cpu="lots"))
    world.add_pod(pod("good"))
    world.read()
    records = world.cycle()
    assert placements(records) == {"good": "n"}
    assert unschedulable(records)["bad"].code == "UnreadablePod"
    assert "'lots'" in unschedulable(records)["bad"].message


def test_absurd_quantities_of_nodes_and_pods_end_nothing() -> None:
    world = World()
    world.add_node(node("huge", cpu="10000", memory=str(2**53)))
    world.add_node(node("odd", cpu="many", memory="-5"))
    world.add_pod(pod("p", cpu="9000", memory=str(2**52)))
    world.add_pod(pod("q", cpu="1", memory=str(2**63)))
    world.add_pod(pod("r", cpu="-1", memory="1Gi"))
    world.report(metric("odd", cpu="much"))
    world.report(metric("huge", cpu="1", memory="9" * 40))
    world.read()
    assert placements(world.cycle()) == {"p": "huge", "r": "huge"}


def test_two_host_ports_do_not_share_a_node_within_a_cycle() -> None:
    world = World()
    world.add_node(node("a"))
    world.add_node(node("b"))
    for name in ("p", "q", "r"):
        world.add_pod(pod(name, ports=(80,)))
    world.read()
    records = world.cycle()
    assert sorted(placements(records).values()) == ["a", "b"]
    assert unschedulable(records)["r"].message == (
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    )


def test_every_profile_places_on_the_same_room() -> None:
    world = World()
    other = DEFAULT_PROFILE[DEFAULT_PROFILE.index("- schedulerName") :].replace("koord-scheduler", "other", 1)
    use(world, DEFAULT_PROFILE + other)
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("a", cpu="600m"))
    world.add_pod(pod("b", cpu="600m", scheduler="other"))
    world.read()
    assert placements(world.cycle()) == {"a": "n"}


def test_equal_nodes_share_the_pods_evenly_and_by_name() -> None:
    world = World()
    for number in range(10):
        world.add_node(node(f"n{number}", cpu="64", memory="256Gi"))
    for number in range(100):
        world.add_pod(pod(f"p{number}"))
    world.read()
    counts = np.unique(list(placements(world.cycle()).values()), return_counts=True)[1]
    assert counts.tolist() == [10] * 10


def splitmix64(seed: int) -> int:
    """The published generator's first output."""
    mask = 2**64 - 1
    z = (seed + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


ZONES = ("z0", "z1", "z2")


@st.composite
def clusters(draw: st.DrawFn) -> World:
    """A cluster in which plugins disagree: taints hard and soft, preferences, load, little room."""
    world = World()
    use(world, thresholds(draw(st.sampled_from((0, 60))), 0))
    for number in range(draw(st.integers(1, 7))):
        taints = draw(
            st.lists(
                st.sampled_from((Taint(key="k", effect="PreferNoSchedule"), Taint(key="k", effect="NoSchedule"))),
                max_size=1,
            )
        )
        world.add_node(
            node(
                f"n{number}",
                cpu=str(draw(st.integers(1, 4))),
                memory=f"{draw(st.integers(1, 4))}Gi",
                pods=str(draw(st.integers(1, 6))),
                labels={"zone": draw(st.sampled_from(ZONES))},
                taints=taints,
                unschedulable=draw(st.sampled_from((False, False, False, True))),
            )
        )
        if draw(st.booleans()):
            world.report(metric(f"n{number}", cpu=f"{draw(st.integers(0, 2500))}m"))
    for number in range(draw(st.integers(1, 20))):
        zone = NodeSelectorTerm(
            match_expressions=(Requirement(key="zone", operator="In", values=(draw(st.sampled_from(ZONES)),)),)
        )
        prefers = NodeAffinity(preferred=(PreferredNodeTerm(weight=draw(st.integers(1, 5)), preference=zone),))
        world.add_pod(
            pod(
                f"p{number}",
                cpu=f"{draw(st.sampled_from((0, 300, 700)))}m",
                priority=draw(st.sampled_from((None, 5500, 9500))),
                affinity=draw(st.sampled_from((None, Affinity(node_affinity=prefers)))),
                tolerations=draw(st.sampled_from(((), (Toleration(key="k", operator="Exists"),)))),
                ports=draw(st.sampled_from(((), (), (80,)))),
                extra=draw(st.sampled_from((None, {"kubernetes.io/batch-cpu": "1"}))),
            )
        )
    world.read()
    return world


@settings(max_examples=examples(150), deadline=None)
@given(clusters())
def test_a_batch_places_as_pods_one_by_one_would(world: World) -> None:
    alone = World()
    alone.logs = {name: list(log) for name, log in world.logs.items()}
    alone.view.restore(world.view.encode())
    assert placements(world.cycles(batch=100)) == placements(alone.cycles(batch=1))


LOAD_AWARE_ARGS = st.sampled_from(
    (
        "usageThresholds: {cpu: 50, memory: 40}, filterExpiredNodeMetrics: true",
        "usageThresholds: {cpu: 50}, enableScheduleWhenNodeMetricsExpired: true, filterExpiredNodeMetrics: true",
        "prodUsageThresholds: {cpu: 30}, scoreAccordingProdUsage: true, dominantResourceWeight: 3",
        "aggregated: {usageThresholds: {cpu: 40}, usageAggregationType: p99, scoreAggregationType: p95}",
    )
)


@settings(max_examples=examples(100), deadline=None)
@given(clusters(), LOAD_AWARE_ARGS, st.integers(0, 600))
def test_a_node_alone_is_evaluated_as_among_all(world: World, args: str, later_s: int) -> None:
    """For every plugin: the one-node forms that a cycle uses after a placement equal the forms over all nodes."""
    head = DEFAULT_PROFILE[: DEFAULT_PROFILE.index("  pluginConfig:")]
    use(world, f"{head}  plugins: {{multiPoint: {{enabled: [{{name: LoadAwareScheduling}}]}}}}\n"
        f"  pluginConfig: [{{name: LoadAwareScheduling, args: {{{args}}}}}]\n")  # fmt: skip
    for number in range(3):
        world.add_pod(pod(f"r{number}", on=f"n{number}", phase="Running"))
    world.read()
    world.wait(later_s)
    cache = world.indexed()
    cache.settle()
    snapshot, size = CycleSnapshot(cache.table), cache.table.size
    for plugin, plugin_cache in cache.plugin_caches.items():
        state = plugin.new_state(snapshot, plugin_cache, world.now_ns)
        for pod_class in world.view.pod_classes.values():
            results, scores = state.filter(pod_class, slice(0, size)), state.score(pod_class, slice(0, size))
            assert [state.filter_at(pod_class, row) for row in range(size)] == (
                [0] * size if results is None else results.tolist()
            )
            assert [state.score_at(pod_class, row) for row in range(size)] == (
                [0] * size if scores is None else scores.tolist()
            )


@settings(max_examples=examples(60), deadline=None)
@given(clusters())
def test_each_choice_is_the_highest_total_of_an_evaluation_made_anew(world: World) -> None:
    """A twin that evaluates everything for every pod, node by node, with the plugins' one-node forms."""
    cache = world.indexed()
    cache.settle()
    for record in world.cycles(batch=1):
        if not isinstance(record.event, CycleDecided):
            continue
        (outcome,) = record.event.pods
        before = SchedulerState()
        for earlier in [*world.logs["cluster"], *world.logs["scheduling"][: record.seq - 1]]:
            before.apply(earlier)
        assert one_by_one(before, outcome.pod_uid, record.event.now_ns or 0) == outcome.node


def one_by_one(view: SchedulerState, uid: str, now_ns: int) -> str:
    """The node for one pod, in plain Python."""
    cache = CycleInputs(view, config_of(view).profiles)
    cache.settle()
    pod_class = view.pods[uid].pod_class
    assert pod_class is not None
    profile, snapshot = cache.profiles[pod_class.scheduler], CycleSnapshot(cache.table)
    plugin_states = {
        plugin: plugin.new_state(snapshot, cache.plugin_caches[plugin], now_ns) for plugin in profile.plugins
    }
    passed = [
        (name, row)
        for name, row in sorted(cache.table.rows.items())
        if cache.table.alive[row]
        and not any(plugin_states[plugin].filter_at(pod_class, row) for plugin in profile.filters)
    ]
    totals = dict.fromkeys((name for name, _ in passed), 0)
    for scorer in profile.scorers:
        raw = {name: plugin_states[scorer.plugin].score_at(pod_class, row) for name, row in passed}
        highest = max(raw.values(), default=0) if scorer.plugin.normalize is not Normalize.NONE else 0
        for name, score in raw.items():
            totals[name] += normalized_at(score, highest, scorer.plugin.normalize) * scorer.weight
    if not totals:
        return ""
    best = [name for name, total in totals.items() if total == max(totals.values())]
    return max(best, key=lambda name: splitmix64(int(name_hash(name)) ^ int(name_hash(uid))))


def test_a_decision_is_the_same_whatever_the_hash_seed() -> None:
    """Two processes with other hash seeds decide the same bytes."""
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "tests.unit.scheduler.golden_history"],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            cwd=Path(__file__).parents[3],
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 100


@pytest.mark.parametrize("batch", [1, 7, 256])
def test_a_repeated_decision_is_the_same(batch: int) -> None:
    world = World()
    for number in range(5):
        world.add_node(node(f"n{number}"))
    for number in range(40):
        world.add_pod(pod(f"p{number}", cpu="900m"))
    world.read()
    cache = world.indexed()
    first = decide(cache, world.now_ns, batch)
    assert encode(decide(cache, world.now_ns, batch)) == encode(first)
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert encode(decide(CycleInputs(restored, read_config(DEFAULT_PROFILE).profiles), world.now_ns, batch)) == encode(
        first
    )


def encode(drafts: Sequence[object]) -> bytes:
    return msgspec.json.encode(drafts)


def normalized_at(raw: int, highest: int, how: Normalize) -> int:
    """A raw score as 0..100, given the highest among the feasible nodes. Source: spec/scheduler-core.md 2."""
    if how is Normalize.NONE:
        return raw
    scaled = raw * MAX_SCORE // highest if highest else 0
    return MAX_SCORE - scaled if how is Normalize.DOWN else scaled
