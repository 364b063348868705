"""`koord why node` and `koord why slowdown` on a real log."""

import asyncio
import json
import time
from typing import Any

import pytest
from msgspec.structs import replace

from shared.events import Cause, Draft
from shared.events.cluster import EvictionPaused
from shared.events.descheduling import AnomaliesObserved
from shared.events.intents import EvictionRequested, ObjectDesired
from shared.events.log import ConfigApplied
from shared.events.metrics import ClassReported, NodeReported, PodReported, Usage
from shared.events.migration import DrainRequested
from shared.events.nodes import (
    BestEffortSuppressed,
    DeviatingSignal,
    InterferenceSuspect,
    PodBurst,
    PodInterfered,
    PodInterferenceEnded,
)
from shared.events.slo import IgnoredReport, NodeOvercommitted, NodeReportsIgnored, OvercommitBreakdown
from shared.kube.instants import SECOND
from shared.kube.node import Node, NodeSpec, Taint
from shared.kube.resource_names import NODE_SLOS
from tests.integration.cli.recorded_log import Log, append, run
from tests.integration.cli.recorded_world import begin, write
from tests.support.reservations import observe, reservation
from tests.support.scheduling_world import World, node, pod

GIB = 2**30
TWO_PROFILES = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
  - {name: p, plugins: {balance: {enabled: [{name: LowNodeLoad}]}}}
  - {name: q, plugins: {balance: {enabled: [{name: LowNodeLoad}]}}}
"""


def _cordoned(of: Node) -> Node:
    taint = Taint(key="dedicated", value="gpu", effect="NoSchedule")
    return replace(of, spec=NodeSpec(unschedulable=True, taints=(taint,)))


def _world() -> World:
    """A cordoned node with a latency-sensitive pod and a batch pod, and an idle node."""
    world = World()
    world.now_ns = time.time_ns() - 600 * SECOND
    begin(world, "cluster", "scheduling")
    world.add_node(node("busy", cpu="8"))
    world.add_node(node("idle", cpu="8"))
    world.add_pod(pod("web", cpu="4", on="busy", phase="Running", labels={"koordinator.sh/qosClass": "LS"}))
    world.add_pod(pod("batch", cpu="4", on="busy", phase="Running", labels={"koordinator.sh/qosClass": "BE"}))
    world.add_node(_cordoned(node("busy", cpu="8")))
    world.read()
    [request] = world.record(
        [Draft(EvictionRequested(pod_uid="batch", pod="d/batch", reason="overuse"))], world.now_ns, {"cluster": 1}, ""
    )
    world.observe(
        EvictionPaused(pod="d/batch", pod_uid="batch", reason="held by breaker"), Cause("scheduling", request.seq)
    )
    return world


@pytest.fixture
async def log(database: str) -> Log:
    await write(await asyncio.to_thread(_world), database)
    now_ns = time.time_ns() - 60 * SECOND
    terms = OvercommitBreakdown(
        capacity=8000, margin=2800, system=200, reserved=0, pods=3000, policy="usage", left=2000, amplified=2000, amount=2000
    )  # fmt: skip
    decided = NodeOvercommitted(
        node="busy", report_ns=now_ns, decided_ns=now_ns, why="changed", source="metrics", batch_cpu=terms,
        amounts={"kubernetes.io/batch-cpu": "2000"},
    )  # fmt: skip
    fault = IgnoredReport("NodeMetric", "cpu is negative", "cpu is -500m")
    slo = {"spec": {"resourceUsedThresholdWithBE": {"enable": False}}}
    await append(database, "slo", [
        Draft(decided), Draft(NodeReportsIgnored(node="busy", faults=(fault,), since_ns=now_ns)),
        Draft(ObjectDesired(resource=NODE_SLOS, name="busy", body=slo)),
    ], now_ns)  # fmt: skip
    action: dict[str, Any] = {"node": "busy", "boot": "b", "at_ns": now_ns}
    await append(database, "nodes-0", [
        Draft(BestEffortSuppressed(**action, number=1, policy="cpuset", cpu_milli=2000, cpus="0-1")),
        Draft(PodBurst(**action, number=2, pod_uid="web", pod="d/web", cfs_quota_us=600_000)),
    ], now_ns)  # fmt: skip
    pods = (
        ClassReported("koord-prod", "LS", (PodReported("d/web", 4000, GIB),)),
        ClassReported("koord-batch", "BE", (PodReported("d/batch", 1500, GIB),)),
    )
    report = NodeReported(
        node="busy", at_ns=now_ns, interval_s=15, aggregate_s=60, usage=Usage(7000, 3 * GIB),
        best_effort=Usage(1500, GIB), pods=pods,
    )  # fmt: skip
    await append(database, "metrics-0", [Draft(report)], now_ns)
    return Log(database)


async def test_a_node_names_what_keeps_pods_from_it_since_when_and_its_batch_terms(log: Log) -> None:
    result = await run(log, "why", "node", "node/busy")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("busy: it takes no new pods: it is cordoned\n")
    found = json.loads((await run(log, "why", "node", "busy", "-o", "json")).stdout)
    reasons = {each["text"].partition(" (")[0]: each for each in found["reasons"]}
    cordon = reasons["it is cordoned"]
    assert (cordon["effect"], cordon["event"][:8], cordon["do"]) == ("all", "cluster/", "`kubectl uncordon busy`")
    assert cordon["since"]
    assert reasons["taint dedicated=gpu:NoSchedule keeps away pods that do not tolerate it"]["effect"] == "some"
    assert reasons["cpu is requested in full"]["text"].endswith("(8 of 8)")
    assert any(each.startswith("usage reports about busy cannot be true") for each in reasons)
    assert any(each.startswith("its agent last reported 1 m") for each in reasons)
    assert "batch-cpu: capacity 8000 - margin 2800 - system 200" in " ".join(found["batch"]), found["batch"]
    assert any("best-effort pods may use 2 cpu (CPUs 0-1)" in each for each in found["batch"])
    [paused] = found["evictions"]
    assert paused.startswith("the eviction of d/batch waits since ")
    assert paused.endswith("held by breaker")
    assert "cordoned; taint dedicated:NoSchedule added" in [each["text"] for each in found["steps"]]


async def test_a_node_that_is_drained_names_the_drain_and_how_to_end_it(log: Log) -> None:
    requested = DrainRequested(node="busy", by="root", reason="new disks")
    hot = AnomaliesObserved(of="p/LowNodeLoad", unrelieved={"busy": "a DaemonSet owns it (2 of 2 pods)"})
    applied = ConfigApplied(source="test", digest="00", text=TWO_PROFILES)
    others = [Draft(AnomaliesObserved(of="q/LowNodeLoad", unrelieved={"idle": str(number)})) for number in range(12)]
    drafts = [Draft(applied), Draft(hot), *others, Draft(requested)]
    await append(log.url, "descheduling", drafts, time.time_ns())
    shown = (await run(log, "why", "node", "busy")).stdout
    assert shown.startswith(
        "busy: it takes no new pods: it is cordoned, and the drain by root: new disks goes on (descheduling/"
    )
    assert "    do: `koord drain busy --cancel`, then `kubectl uncordon busy`\n" in shown
    assert "a drain was requested by root: new disks\n" in shown
    assert "its load was high, and p/LowNodeLoad moved no pod from it, in the cycle of " in shown
    assert "(descheduling/3): a DaemonSet owns it (2 of 2 pods)\n" in shown


async def test_annotations_of_a_node_that_cannot_be_read_are_named_by_why_node_and_by_the_doctor(database: str) -> None:
    def world() -> World:
        world = World()
        begin(world, "cluster", "scheduling")
        annotations = {
            "node.koordinator.sh/reservation": '{"resources": {"cpu": "two"}}',
            "scheduling.koordinator.sh/usage-thresholds": '{"usageThresholds": {"cpu": "65"}}',
        }
        world.add_node(node("odd", cpu="8", annotations=annotations))
        return world

    await write(await asyncio.to_thread(world), database)
    shown = (await run(Log(database), "why", "node", "odd")).stdout
    reserved = "annotation node.koordinator.sh/reservation: it cannot be read, and nothing is reserved: "
    assert f"  ignored: {reserved}" in shown
    thresholds = "annotation scheduling.koordinator.sh/usage-thresholds: it cannot be read, and the thresholds of the"
    assert f"  ignored: {thresholds}" in shown
    doctor = (await run(Log(database), "doctor", "-o", "json")).stdout
    found = [each["what"] for each in json.loads(doctor) if each["what"].startswith("node odd: ")]
    assert [text.startswith((f"node odd: {reserved}", f"node odd: {thresholds}")) for text in found] == [True, True]


async def test_labels_of_a_node_with_unknown_values_are_named_by_why_node_and_by_the_doctor(database: str) -> None:
    def world() -> World:
        world = World()
        begin(world, "cluster", "scheduling")
        labels = {
            "node.koordinator.sh/numa-topology-policy": "Bar",
            "node.koordinator.sh/numa-allocate-strategy": "Baz",
        }
        ratios = {"node.koordinator.sh/resource-amplification-ratio": "abc"}
        world.add_node(node("odd", cpu="8", labels=labels, annotations=ratios))
        return world

    await write(await asyncio.to_thread(world), database)
    shown = (await run(Log(database), "why", "node", "odd")).stdout
    closed = (
        "label node.koordinator.sh/numa-topology-policy is 'Bar', and NodeNUMAResource rejects the node; "
        "give one of BestEffort, Restricted, SingleNUMANode"
    )
    ratio = "annotation node.koordinator.sh/resource-amplification-ratio cannot be read: it is no JSON"
    strategy = "label node.koordinator.sh/numa-allocate-strategy is 'Baz' and counts as none; give one of MostAllocated"
    assert shown.startswith(f"odd: it takes no new pods: {closed}\n")
    assert f"  ignored: {ratio}: invalid character (byte 0); correct or remove it" in shown
    assert f"  ignored: {strategy}, LeastAllocated" in shown
    doctor = (await run(Log(database), "doctor", "-o", "json")).stdout
    found = [each["what"] for each in json.loads(doctor) if each["what"].startswith("node odd: ")]
    assert [text.startswith(f"node odd: {each}") for text, each in zip(found, (ratio, strategy, closed), strict=True)]


async def test_gpu_memory_is_shown_in_gi_as_other_bytes_are(database: str) -> None:
    def world() -> World:
        memory = "koordinator.sh/gpu-memory"
        world = World()
        begin(world, "cluster", "scheduling")
        world.add_node(node("gpu", cpu="8", extra={memory: "320Gi", "ephemeral-storage": "1536Mi"}))
        world.add_pod(pod("train", on="gpu", phase="Running", extra={memory: "320Gi"}))
        return world

    await write(await asyncio.to_thread(world), database)
    described = (await run(Log(database), "describe", "node", "gpu")).stdout.splitlines()
    rows = [line.split() for line in described]
    assert ["koordinator.sh/gpu-memory", "-", "320Gi", "320Gi"] in rows
    assert ["ephemeral-storage", "-", "1.5Gi", "0"] in rows
    shown = (await run(Log(database), "why", "node", "gpu")).stdout
    assert "koordinator.sh/gpu-memory is requested in full (320Gi of 320Gi)" in shown
    assert shown.count("koordinator.sh/gpu-memory 320Gi") == 2, "requested and allocatable"


async def test_a_node_names_what_is_free_where_waiting_pods_request_more(database: str) -> None:
    def world() -> World:
        world = World()
        begin(world, "cluster", "scheduling")
        world.add_node(node("n1", cpu="50"))
        world.add_pod(pod("web", cpu="45", on="n1", phase="Running"))
        for each, cpu in enumerate(("10", "10", "5")):
            world.add_pod(pod(f"wait-{each}", cpu=cpu))
        world.add_pod(pod("theirs", cpu="10", scheduler="default-scheduler"))
        world.add_pod(pod("gated", cpu="10", gates=("later",)))
        world.add_pod(pod("larger-than-the-node", cpu="200"))
        return world

    await write(await asyncio.to_thread(world), database)
    lines = (await run(Log(database), "why", "node", "n1")).stdout.splitlines()
    text = "2 of the 3 pods that wait request more than the 5 cpu that are free"
    assert lines[0] == f"n1: it takes fewer pods: {text}"
    assert f"  now: {text}" in lines


async def test_a_reservation_that_waits_is_no_pod_that_waits(database: str) -> None:
    def world() -> World:
        world = World()
        begin(world, "cluster", "scheduling")
        world.add_node(node("n1", cpu="50"))
        observe(world, reservation("huge", "100"))
        return world

    await write(await asyncio.to_thread(world), database)
    shown = (await run(Log(database), "why", "node", "n1")).stdout
    assert "; in the cluster 1 Reservation waits for a node\n" in shown
    found = json.loads((await run(Log(database), "why", "node", "n1", "-o", "json")).stdout)
    assert (found["waiting"], found["waiting_reservations"]) == (0, 1)


async def test_a_node_with_nothing_against_it_names_what_is_not_known(log: Log) -> None:
    result = await run(log, "why", "node", "idle")
    assert "ignored:" not in result.stdout
    assert result.stdout.startswith("idle: nothing in the log keeps pods from it; no pod waits for a node\n")
    assert "its usage: the log has no report of it" in result.stdout
    absent = await run(log, "why", "node", "bsy")
    assert (absent.exit_code, "perhaps 'busy' is meant" in absent.stderr) == (1, True)


async def test_a_node_without_batch_resources_names_what_switches_them_on(log: Log) -> None:
    for texts, expected in (
        (None, "the SLO controller has not run yet"),
        ({}, 'over-commitment is off: write colocation-config {"enable": true} into ConfigMap koordinator-system/slo-'),
        ({"colocation-config": '{"enable": true}'}, "over-commitment is on for it; the amounts follow its first usage"),
        (
            {"colocation-config": '{"enable": true, "nodeConfigs": [{"nodeSelector": {}, "enable": false}]}'},
            "and a strategy for nodes like this switches it off",
        ),
    ):
        if texts is not None:
            text = json.dumps(texts)
            applied = ConfigApplied(source="a ConfigMap", digest=str(len(text)), text=text)
            await append(log.url, "slo", [Draft(applied)], time.time_ns(), [ConfigApplied])
        assert expected in (await run(log, "why", "node", "idle")).stdout
        assert expected in (await run(log, "explain", "node", "idle")).stderr


async def test_a_node_that_does_not_exist_is_answered_with_the_closest(log: Log) -> None:
    assert "there is no node 'idel'; perhaps 'idle' is meant" in (await run(log, "explain", "node", "idel")).stderr


async def test_a_batch_pod_is_suppressed_since_an_instant(log: Log) -> None:
    result = await run(log, "why", "slowdown", "batch", "-n", "d")
    assert result.exit_code == 0, result.stderr
    first = result.stdout.splitlines()[0]
    assert first.startswith("d/batch (batch), BE class, on busy: it is suppressed since ")
    assert first.endswith("(nodes-0/2): all best-effort pods of busy share 2 cpu of 8")
    assert "throttled periods of its cgroup" in result.stdout


async def test_a_latency_sensitive_pod_has_its_bursts_its_node_and_its_neighbours(log: Log) -> None:
    found = json.loads((await run(log, "why", "slowdown", "pod/d/web", "-o", "json")).stdout)
    assert (found["qos"], found["node"]) == ("LS", "busy")
    text = " ".join(found["findings"])
    assert "best-effort pods beside it are held to 2 cpu since" in text
    assert "its NodeSLO does not suppress best-effort pods" in text
    assert "it used at most 4 cpu" in text
    assert "busy used at most 87 % of its cpu" in text
    assert "1 of 1 reports are above 80 %" in text
    assert [each["pod"] for each in found["neighbours"]] == ["d/batch"]
    assert [each["text"] for each in found["steps"]] == ["the pod: its cpu quota is 6 from here on"]
    old = json.loads((await run(log, "why", "slowdown", "d/web", "--since", "1s", "-o", "json")).stdout)
    assert (old["steps"], old["unknown"][0][:24]) == ([], "usage: the log has no re")


def _slowed(now_ns: int, number: int, **more: Any) -> PodInterfered:
    return PodInterfered(
        node="busy", boot="b", number=number, at_ns=now_ns, pod_uid="web", pod="d/web", since_ns=now_ns - 12 * SECOND,
        deviations=(DeviatingSignal("schedulingLatency", 8_000.0, 500.0, 1_000.0),),
        suspects=(InterferenceSuspect("batch", 97, "schedulingLatency", "cpu", 1_900.4, "d/batch"),),
        **more,
    )  # fmt: skip


async def test_a_pod_that_neighbours_slow_down_has_what_deviates_the_suspects_and_what_was_done(log: Log) -> None:
    now_ns = time.time_ns() - 30 * SECOND
    await append(log.url, "nodes-0", [Draft(_slowed(now_ns, 3, answer="migrate", job="interference-batch"))], now_ns)
    shown = (await run(log, "why", "slowdown", "d/web")).stdout
    assert "on busy: it is slowed down by best-effort neighbours since " in shown.splitlines()[0]
    assert "  deviates: schedulingLatency: 8 ms a time slice waiting for a CPU, 16.0 times the usual 0.5; the limit is 1\n" in shown  # fmt: skip
    assert "  suspect: d/batch: its cpu (1900m) is correlated with schedulingLatency by 97 %\n" in shown
    assert "  answer: PodMigrationJob interference-batch was requested (`koord why eviction inter" in shown
    assert "interference-config" in shown  # its NodeSLO does not enable it any more
    [found] = json.loads((await run(log, "why", "slowdown", "d/web", "--since", "1s", "-o", "json")).stdout)["interference"]  # fmt: skip
    assert (found["until"], found["job"]) == ("", "interference-batch")
    assert "it is suspected of having slowed down d/web since " in (await run(log, "why", "slowdown", "d/batch")).stdout
    ended = PodInterferenceEnded(
        node="busy", boot="b", number=4, at_ns=now_ns, pod_uid="web", pod="d/web", reason="recovered"
    )
    await append(log.url, "nodes-0", [Draft(ended), Draft(_slowed(now_ns, 5, answer="suppress"))], now_ns)
    found = json.loads((await run(log, "why", "slowdown", "d/web", "-o", "json")).stdout)
    assert [each["ended"] for each in found["interference"]] == ["it has recovered", ""]
    assert (
        "answer: nothing: best effort is not suppressed on this node (resource-threshold-config)" in found["findings"]
    )
    assert [each["text"].partition(":")[0] for each in found["steps"]][1:] == [
        "the pod is slowed down by d/batch (its cpu (1900m) is correlated with schedulingLatency by 97 %)",
        "the pod is no longer slowed down",
        "the pod is slowed down by d/batch (its cpu (1900m) is correlated with schedulingLatency by 97 %)",
    ]
    assert "d/web is no longer slowed down: it has recovered" in (await run(log, "why", "node", "busy")).stdout


async def test_a_pod_without_a_name_in_the_log_is_an_error(log: Log) -> None:
    absent = await run(log, "why", "slowdown", "d/nothing")
    assert (absent.exit_code, absent.stderr) == (
        1, "koord: the log has no pod 'd/nothing'; `koord get pods -A` shows those there are\n"
    )  # fmt: skip
