"""Series of koordlet's page, on a node made of files: resources, limits, evictions."""

from pathlib import Path

import msgspec
import pytest

from services.node_agent.prometheus.exposition import TEXTS
from services.node_agent.prometheus.koordlet_series import prod_reclaimable
from shared.agents.report import Forecast
from shared.domain.cpu_set import cpu_list
from shared.kube.node_resource_topology import BE_SHARED_POOLS, SHARED_POOLS
from shared.kube.pod import ResourceRequirements
from tests.unit.node_agent.qos_manager.managed_node import BATCH, CID, GIB, LS, WEB, ManagedNode, pod

Shown = dict[tuple[str, ...], float]


def shown(machine: ManagedNode) -> Shown:
    """Name and values of labels -> value."""
    found = list(machine.qos_manager.gauges())
    assert {each.name for each in found} <= TEXTS.keys()
    keys = [(each.name.removeprefix("koordlet_"), *each.labels.values()) for each in found]
    assert len(set(keys)) == len(keys), "no series twice"
    return dict(zip(keys, (each.value for each in found), strict=True))


def test_requests_of_containers_and_cpu_usage(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.files.make("kubepods/besteffort/pododd")
    odd = pod(
        "odd",
        "BE",
        "BestEffort",
        ResourceRequirements(requests={"kubernetes.io/batch-cpu": "x"}, limits={"kubernetes.io/batch-cpu": "500"}),
    )
    machine.run_cycle(node=4.0, ls=2.5, be=1.0)
    found = shown(machine)
    of = ("be", "default", "be", CID["be"], "c")
    assert found["container_resource_requests", "kubernetes.io/batch-cpu", "integer", *of] == 2000
    assert found["container_resource_limits", "kubernetes.io/batch-memory", "byte", *of] == GIB
    assert found["be_suppress_ls_used_cpu_cores",] == 2.5
    assert found["be_suppress_be_used_cpu_cores",] == 1.0
    assert not any(name[0] in {"be_suppress_cpu_cores", "pod_eviction"} for name in found)
    machine.pods(BATCH, WEB, odd)
    machine.run_cycle(node=4.0, ls=2.5, be=1.0)
    of = ("odd", "default", "odd", "", "c")
    assert shown(machine)["container_resource_limits", "kubernetes.io/batch-cpu", "integer", *of] == 500


def test_the_limit_of_best_effort_under_either_policy(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 65})
    machine.run_cycle(node=4.0, ls=2.5, be=1.0)
    assert shown(machine)["be_suppress_cpu_cores", "cpuset"] == 3
    machine.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"})
    machine.run_cycle(node=4.0, ls=2.5, be=1.0)
    assert shown(machine)["be_suppress_cpu_cores", "cfsQuota"] == 2.2
    machine.slo(resourceUsedThresholdWithBE={"enable": False})
    machine.run_cycle(node=4.0, ls=2.5, be=1.0)
    assert not any(name[0] == "be_suppress_cpu_cores" for name in shown(machine))


@pytest.mark.parametrize(("gates", "cpus"), [("", ""), ("PerCPUMetric=true", "0-1,6")])
def test_share_pools_by_their_cpus(tmp_path: Path, gates: str, cpus: str) -> None:
    machine = ManagedNode(tmp_path, 1, gates)
    pools = [{"socket": 0, "node": 0, "cpuset": "0-1"}, {"socket": 0, "node": 1, "cpuset": "6"}]
    topology = {SHARED_POOLS: msgspec.json.encode(pools).decode(), BE_SHARED_POOLS: '[{"cpuset":"0-2"}]'}
    machine.pods(BATCH, WEB, topology=topology)
    machine.run_cycle(node=1, ls=0.5, be=0.3)
    found = shown(machine)
    assert found["cpuset_share_pool_cpu_cores",] == 3
    assert found["cpuset_be_share_pool_cpu_cores",] == 3
    assert cpu_list(int(name[1]) for name in found if name[0] == "cpuset_share_pool_info") == cpus


def test_evictions_by_their_reason(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1, "BEMemoryEvict=true")
    machine.slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": 70})
    machine.run_cycle(node=1, ls=0.5, be=0.3, memory=13 * GIB)
    reason = "trigger by koordlet feature BEMemoryEvict"
    assert shown(machine)["pod_eviction", reason] == 1
    assert shown(machine)["pod_eviction_detail", "default", "be", reason] == 1
    machine.clock.now_ns += 301 * 10**9
    machine.run_cycle(node=1, ls=0.5, be=0.3, memory=GIB)
    found = shown(machine)
    assert found["pod_eviction", reason] == 1
    assert ("pod_eviction_detail", "default", "be", reason) not in found


def test_unused_requests_of_prod_pods_as_the_node_metric_has_them() -> None:
    def values(forecast: Forecast | None) -> list[float]:
        return [each.value for each in prod_reclaimable(forecast)]

    assert values(Forecast(1_500, GIB)) == [1.5, GIB, 0]
    assert values(None) == values(Forecast()) == [0, 0, 1]


def test_quotas_that_cpu_burst_has_raised_and_scores_of_annotations(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    meta = msgspec.structs.replace(WEB.metadata, annotations={"koordinator.sh/oom-score-adj": "-5"})
    machine.pods(BATCH, msgspec.structs.replace(WEB, metadata=meta))
    machine.slo(cpuBurstStrategy={"policy": "cpuBurstOnly", "cpuBurstPercent": 1000})
    machine.run_cycle(node=1, ls=0.5, be=0.3)
    of = ("default", "ls", CID["ls"], "c")
    found = shown(machine)
    assert found["container_scaled_cfs_burst_us", *of] == 2_000_000
    assert ("container_scaled_cfs_quota_us", *of) not in found
    assert found["container_oom_score_adj", "ls", "default", "ls", "c"] == -5
    (tmp_path / "cgroup/cpu" / LS / CID["ls"] / "cpu.cfs_quota_us").write_text("240000\n")
    machine.clock.now_ns += 120 * 10**9  # the file is read again
    assert shown(machine)["container_scaled_cfs_quota_us", *of] == 240_000
