"""The worked examples E15 to E18 of spec/node-agent.md 8."""

import pytest

from services.node_agent.qos_manager.strategies.cpu_burst import (
    BurstLimiters,
    CurrentLimits,
    Limiter,
    Measured,
    NodeState,
    node_state,
)
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.pod import Pod
from shared.kube.slo_config import CpuBurst
from tests.support.pods import kept_pod


def each(cpu: str, qos: str = "LS") -> NodePod:
    limits = {"cpu": cpu}
    pod = kept_pod(uid="uid", labels={"koordinator.sh/qosClass": qos}, requests=limits, limits=limits, phase="Running")
    return NodePod(pod, {"c": "id"}, frozenset({"c"}))


@pytest.mark.parametrize(("cpu", "percent", "burst"), [("2", 1000, 2_000_000), ("500m", 200, 100_000)])
def test_e15_burst_buffer(cpu: str, percent: int, burst: int) -> None:
    strategy = CpuBurst(policy="cpuBurstOnly", cpu_burst_percent=percent)
    decision = BurstLimiters(lambda *_: 0).decide(
        each(cpu), strategy, NodeState.IDLE, lambda _: CurrentLimits(None, None), lambda _: Measured(None, None), 0
    )
    assert decision.containers_burst_us == {"id": burst}


def test_e16_a_throttled_container_grows_step_by_step_and_shrinks_when_the_node_is_full() -> None:
    bursts, quotas = BurstLimiters(lambda *_: 0), {"id": 200_000, "": 450_000}
    strategy = CpuBurst(policy="auto", cfs_quota_burst_percent=300, cfs_quota_burst_period_seconds=-1)

    def after(state: NodeState) -> int:
        decision = bursts.decide(
            each("2"), strategy, state, lambda cid: CurrentLimits(quotas[cid], 0), lambda _: Measured(0.5, 2.0), 0
        )
        quotas["id"] = decision.containers_quota_us.get("id", quotas["id"])
        quotas[""] = decision.quota_us if decision.quota_us is not None else quotas[""]
        return quotas["id"]

    assert after(NodeState.IDLE) == 240_000
    assert quotas[""] == 490_000
    found = [after(NodeState.IDLE) for _ in range(6)]
    assert found == [288_000, 345_600, 414_720, 497_664, 597_196, 600_000]
    found = [after(NodeState.OVERLOAD) for _ in range(5)]
    assert found == [480_000, 384_000, 307_200, 245_760, 200_000]
    assert quotas[""] == 450_000


def test_e17_the_token_bucket_above_the_limit() -> None:
    bucket = Limiter(60_000, 1_000, 0, 600 * SECOND)
    once = bucket.spent(150, 10 * SECOND)
    twice = once.spent(150, 20 * SECOND)
    assert (once.token, once.allows, twice.token, twice.allows) == (500, True, 0, False)
    assert bucket.spent(40, 10 * SECOND).token == 1_600
    assert bucket.spent(75, 10 * SECOND).token == 1_000


@pytest.mark.parametrize(
    ("node_cores", "state"), [(22.0, NodeState.COOLING), (21.5, NodeState.IDLE), (23.0, NodeState.OVERLOAD)]
)
def test_e18_load_of_the_shared_cpus(node_cores: float, state: NodeState) -> None:
    lsr = each("8", "LSR").pod
    be = Pod(metadata=Metadata(name="be", uid="be", labels={"koordinator.sh/qosClass": "BE"}))
    assert node_state(50, 32, node_cores, {"uid": 6.0, "be": 5.0}, [lsr, be]) is state


def test_without_a_sample_the_state_of_the_node_is_unknown() -> None:
    assert node_state(50, 32, None, {}, []) is NodeState.UNKNOWN
    assert node_state(50, None, 1.0, {}, []) is NodeState.UNKNOWN
