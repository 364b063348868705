"""The worked examples E21 and E22 of spec/node-agent.md 8, and the values of cpuset and OOM score."""

import pytest

from services.node_agent.runtime_hooks import batch_resource, cpu_normalization, cpuset, oom_score_from_annotations
from services.node_agent.runtime_hooks.batch_resource import BatchRule
from services.node_agent.runtime_hooks.cpu_normalization import BadRatio, Normalization
from services.node_agent.runtime_hooks.cpuset import CpuRule
from services.node_agent.runtime_hooks.group_identity import BadCpuQos, Identities
from shared.kube.pod import Container, Pod, ResourceRequirements
from shared.kube.slo_config import CpuQos, QosClass, QosPolicies, ResourceQos
from tests.support.pods import kept_pod

STRATEGY = ResourceQos(
    lsr_class=QosClass(cpu_qos=CpuQos(enable=False, group_identity=2)),
    ls_class=QosClass(cpu_qos=CpuQos(enable=True, group_identity=2)),
    be_class=QosClass(cpu_qos=CpuQos(enable=True, group_identity=-1)),
)
STATUS = "scheduling.koordinator.sh/resource-status"


def pod(qos: str = "", kube: str = "Guaranteed", annotations: dict[str, str] | None = None) -> Pod:
    labels = {"koordinator.sh/qosClass": qos} if qos else None
    return kept_pod(
        namespace="default", uid="uid", labels=labels, annotations=annotations, phase="Running", qos_class=kube
    )


@pytest.mark.parametrize(
    ("of", "bvt"),
    [
        (pod(), 2),
        (pod("LSR"), 0),
        (pod("LS", annotations={"koordinator.sh/cpuQOS": '{"enable":true,"groupIdentity":-1}'}), -1),
        (pod("LS", annotations={"koordinator.sh/cpuQOS": '{"groupIdentity":-1}'}), 0),
        (pod("BE"), -1),
    ],
)
def test_e21_identities_of_pods(of: Pod, bvt: int) -> None:
    assert Identities.of(STRATEGY).of_pod(of) == bvt


def test_e21_identities_of_the_cgroups_that_hold_pods() -> None:
    found = Identities.of(STRATEGY)
    assert [found.of_folder(kube) for kube in ("Guaranteed", "Burstable", "BestEffort")] == [0, 2, -1]


def test_core_scheduling_turns_identities_off() -> None:
    strategy = ResourceQos(policies=QosPolicies(cpu_policy="coreSched"), ls_class=STRATEGY.ls_class)
    assert not Identities.of(strategy).enabled


def test_an_annotation_that_cannot_be_read_names_its_pod() -> None:
    with pytest.raises(BadCpuQos, match="default/p"):
        Identities.of(STRATEGY).of_pod(pod("BE", annotations={"koordinator.sh/cpuQOS": "{"}))


def batch_pod(*limits: str) -> Pod:
    requests = ({"kubernetes.io/batch-cpu": "500"}, {"kubernetes.io/batch-cpu": "1000"})
    containers = tuple(
        Container(
            name=f"c{number}",
            resources=ResourceRequirements(
                requests=request,
                limits={"kubernetes.io/batch-cpu": limit, "kubernetes.io/batch-memory": "1Gi"} if limit else None,
            ),
        )
        for number, (request, limit) in enumerate(zip(requests, limits, strict=True))
    )
    return kept_pod("b", labels={"koordinator.sh/qosClass": "BE"}, containers=containers)


@pytest.mark.parametrize(("ratio", "quota"), [(None, 250_000), (1.15, 217_392), (0.9, 250_000)])
def test_e22_a_pod_of_two_containers(ratio: float | None, quota: int) -> None:
    found = batch_resource.batch_requests(batch_pod("1000", "1500"))
    assert found is not None
    values = batch_resource.pod_values(found, BatchRule(quota=True, ratio=ratio))
    assert values == (1_536, quota, 2_147_483_648)


def test_e22_containers_on_a_faster_node() -> None:
    found = batch_resource.batch_requests(batch_pod("1000", "1500"))
    assert found is not None
    assert batch_resource.container_values(found["c0"], BatchRule(quota=True, ratio=1.15)).quota_us == 86_957
    assert batch_resource.container_values(found["c1"], BatchRule(quota=True, ratio=1.2)).quota_us == 125_000


def test_e22_one_container_without_a_limit_frees_the_pod() -> None:
    found = batch_resource.batch_requests(batch_pod("1000", ""))
    assert found is not None
    assert batch_resource.pod_values(found, BatchRule(quota=True))[1:] == (-1, -1)


def test_suppress_by_quota_removes_quotas_of_pods() -> None:
    found = batch_resource.batch_requests(batch_pod("1000", "1500"))
    assert found is not None
    assert batch_resource.pod_values(found, BatchRule(quota=False)).quota_us == -1


def test_an_invalid_ratio_keeps_the_last_good_one() -> None:
    rule = Normalization().with_annotation("1.2")
    with pytest.raises(BadRatio, match="last good one"):
        rule.with_annotation("fast")
    assert rule.with_annotation("1.205") is rule
    assert cpu_normalization.scaled(100_000, rule.ratio) == 83_334


RULE = CpuRule.of(
    {
        "node.koordinator.sh/cpu-shared-pools": '[{"socket":0,"node":0,"cpuset":"0-3"},{"socket":1,"node":1,"cpuset":"4-7"}]',
        "node.koordinator.sh/be-cpu-shared-pools": '[{"socket":0,"node":0,"cpuset":"2-3"}]',
        "node.koordinator.sh/system-qos-resource": '{"cpuset":"8-9"}',
    }
)


@pytest.mark.parametrize(
    ("of", "cpus"),
    [
        (pod("LSR", annotations={STATUS: '{"cpuset":"1-2"}'}), "1-2"),
        (pod("LS", annotations={STATUS: '{"numaNodeResources":[{"node":1,"resources":{"cpu":"2"}}]}'}), "4-7"),
        (pod("SYSTEM"), "8-9"),
        (pod("LS"), "0-7"),
        (pod("BE", "BestEffort"), ""),
        (pod(), "0-7"),
    ],
)
def test_the_cpus_of_a_container(of: Pod, cpus: str) -> None:
    assert cpuset.container_cpus(of, RULE) == cpus


def test_without_a_topology_only_the_schedulers_allocation_counts() -> None:
    assert cpuset.container_cpus(pod("LS"), None) is None
    assert cpuset.container_cpus(pod("LSE", annotations={STATUS: '{"cpuset":"3"}'}), None) == "3"


def test_a_static_kubelet_keeps_its_assignments() -> None:
    assert cpuset.container_cpus(pod(), RULE._replace(static=True)) is None


@pytest.mark.parametrize(
    ("annotations", "score"),
    [
        ({"koordinator.sh/oom-score-adj": "-500"}, -500),
        ({"koordinator.sh/oom-score-adj": "5", "koordinator.sh/oom-score-adj-spec": '{"c":900}'}, 900),
        ({"koordinator.sh/oom-score-adj": "5", "koordinator.sh/oom-score-adj-spec": '{"other":900}'}, 5),
        ({"koordinator.sh/oom-score-adj": "1001"}, None),
        ({"koordinator.sh/oom-score-adj": "high"}, None),
        (None, None),
    ],
)
def test_the_oom_score_of_a_container(annotations: dict[str, str] | None, score: int | None) -> None:
    assert oom_score_from_annotations.score(annotations, "c") == score


@pytest.mark.parametrize(
    "text", ['{"cpuset":7}', '{"numaNodeResources":5}', '{"numaNodeResources":[{"node":"x"}]}', "[]", "{", '"1-2"']
)
def test_an_invalid_annotation_counts_as_absent(text: str) -> None:
    assert cpuset.container_cpus(pod("LSE", annotations={STATUS: text}), None) is None
    assert not cpuset.unlimited(pod("LSE", annotations={STATUS: text}))
