"""Nodes whose reports stop: their amounts stay, then no further pod fits, and nobody is evicted."""

import msgspec
import pytest

from services.node_agent.qos_manager.strategies import cpu_evict
from services.node_agent.qos_manager.strategies.evict_until_released import NoTask
from services.slo_controller.overcommit import batch_resources
from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import ORIGIN
from services.slo_controller.state.slo_state import SloState
from shared.events.slo import NodeOvercommitted, OvercommitmentFrozen, OvercommitmentResumed
from shared.kube.meta import Metadata
from shared.kube.node import REPORTS_MISSING, Node, NodeStatus
from shared.kube.slo_config import ResourceThreshold
from tests.support.pods import kept_pod
from tests.support.slo_cluster import Cluster, G, running

EXPIRED_S = 30 + 15 * 60 + 1
BATCH = {"kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "1Gi"}


def with_batch_pods(count: int) -> Cluster:
    """A reporting node of 25,000 milli-cores of batch-cpu with pods of 3,000 each."""
    cluster = running()
    cluster.decide(31)
    for number in range(count):
        cluster.pod(f"b-{number}", cpu="0", memory="0", class_="koord-batch", qos="BE", at_s=40, more=BATCH)
    assert cluster.decide(41) == []
    return cluster


def test_after_the_degrade_time_no_further_pod_fits_and_none_is_in_excess() -> None:
    cluster = with_batch_pods(8)
    assert cluster.decide(EXPIRED_S - 1) == []
    decided = cluster.decided(EXPIRED_S)
    assert decided is not None
    assert (decided.why, decided.amounts[batch_resources.CPU]) == ("degraded", "24k")
    assert decided.amounts[batch_resources.MEMORY] == "8Gi"
    assert decided.annotations[REPORTS_MISSING] == "true"
    assert cluster.decide(EXPIRED_S + 5) == []


def test_capacity_that_a_pod_frees_meanwhile_is_not_overcommitted_again() -> None:
    cluster = with_batch_pods(8)
    cluster.decide(EXPIRED_S)
    cluster.no_pod("b-0", EXPIRED_S + 1)
    decided = cluster.decided(EXPIRED_S + 2)
    assert decided is not None
    assert decided.amounts[batch_resources.CPU] == "21k"
    cluster.pod("b-9", cpu="0", memory="0", class_="koord-batch", qos="BE", at_s=EXPIRED_S + 3, more=BATCH)
    assert cluster.decide(EXPIRED_S + 4) == []


def test_the_next_report_restores_the_amounts() -> None:
    cluster = with_batch_pods(2)
    cluster.decide(EXPIRED_S)
    cluster.report(EXPIRED_S + 10, {"web": (33_000, 33 * G)}, system=(7_000, 12 * G))
    decided = cluster.decided(EXPIRED_S + 11)
    assert decided is not None
    assert (decided.amounts[batch_resources.CPU], decided.annotations[REPORTS_MISSING]) == ("25k", None)


def test_third_parties_keep_what_they_have() -> None:
    cluster = with_batch_pods(2)
    third = '{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"5k"}}]}'
    cluster.node(annotations={"node.koordinator.sh/thirdPartyAllocations": third})
    cluster.decide(50)
    decided = cluster.decided(EXPIRED_S)
    assert decided is not None
    origin = msgspec.json.decode(decided.annotations[ORIGIN] or "")["resources"]
    assert origin[batch_resources.CPU] == "11k"


@pytest.mark.parametrize("percent", [80, 100])
def test_the_agent_evicts_nobody_for_missing_reports(percent: int) -> None:
    """Fault 09: the amounts were removed, and each batch pod exceeded them."""
    node = Node(
        metadata=Metadata(name="n", annotations={REPORTS_MISSING: "true"}),
        status=NodeStatus(allocatable={"cpu": "32", "kubernetes.io/batch-cpu": "6k"}),
    )
    labels = {"koordinator.sh/priority-class": "koord-batch", "koordinator.sh/eviction-enabled": "true"}
    pods = [kept_pod(f"b-{n}", uid=f"{n}", labels=labels, requests=BATCH, phase="Running") for n in range(2)]
    threshold = ResourceThreshold(
        cpu_allocatable_evict_threshold_percent=percent,
        cpu_allocatable_evict_lower_percent=percent - 10,
        allocatable_evict_priority_threshold=5999,
    )
    assert cpu_evict.by_allocatable(threshold, node, pods, {pod.metadata.uid: 0.01 for pod in pods}) is NoTask.NONE


def fleet(count: int = 10) -> Cluster:
    """Nodes that report, each with 65,000 milli-cores of batch-cpu."""
    cluster = Cluster()
    cluster.configure()
    for number in range(count):
        cluster.node(f"n-{number}")
        cluster.report(30, {}, node=f"n-{number}")
    cluster.decide(31)
    return cluster


def test_many_silent_nodes_freeze_overcommitment() -> None:
    cluster = fleet()
    for number in range(7):
        cluster.report(300, {}, node=f"n-{number}")
    assert [type(event) for event in cluster.decide(301)] == [OvercommitmentFrozen]
    assert cluster.state.frozen
    assert cluster.decide(EXPIRED_S) == []
    assert cluster.batch_cpu("n-9") == 65_000
    restored = SloState()
    restored.restore(cluster.state.encode())
    assert restored.frozen


def test_a_frozen_node_falls_with_new_requests_and_does_not_rise() -> None:
    cluster = fleet()
    cluster.decide(301)
    cluster.pod("prod", cpu="60", memory="1G", at_s=310, node="n-0")
    cluster.decide(EXPIRED_S)
    assert cluster.batch_cpu("n-0") == 40_000
    cluster.no_pod("prod", EXPIRED_S + 1)
    cluster.decide(EXPIRED_S + 2)
    assert cluster.state.decided["n-0"].amounts[batch_resources.CPU] == "40k"


def test_overcommitment_resumes_with_the_reports() -> None:
    cluster = fleet()
    cluster.decide(301)
    for number in range(9):
        cluster.report(EXPIRED_S, {}, node=f"n-{number}")
    appended = cluster.decide(EXPIRED_S + 1)
    assert isinstance(appended[0], OvercommitmentResumed)
    assert not cluster.state.frozen
    degraded = [event.node for event in appended if isinstance(event, NodeOvercommitted)]
    assert degraded == ["n-9"]


def test_few_silent_nodes_are_degraded_by_themselves() -> None:
    cluster = fleet()
    for number in range(8):
        cluster.report(EXPIRED_S, {}, node=f"n-{number}")
    degraded = [event.node for event in cluster.decide(EXPIRED_S + 1) if isinstance(event, NodeOvercommitted)]
    assert degraded == ["n-8", "n-9"]
