"""The worked examples E6 to E9 of spec/node-agent.md 8, and cycles in which upstream would crash."""

import pytest

from services.node_agent.qos_manager.strategies import cpu_suppress
from services.node_agent.qos_manager.strategies.cpu_selection import Processor, select
from services.node_agent.qos_manager.strategies.cpu_suppress import (
    HostApp,
    Policy,
    SuppressInputs,
    Usage,
    cpu_count,
    quota,
    select_cpus,
    suppress_share,
)
from services.node_agent.states_informer.annotations import ReservedCpus
from shared.domain.cpu_set import cpu_list
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Pod
from shared.kube.slo_config import ResourceThreshold
from tests.support.pods import kept_pod

CORE = 10**9
NODE = Node(
    metadata=Metadata(name="n", annotations={"node.koordinator.sh/reservation": '{"resources":{"cpu":"4"}}'}),
    status=NodeStatus(capacity={"cpu": "80"}, allocatable={"cpu": "78"}),
)
EIGHT = tuple(Processor(cpu, cpu % 4, cpu % 4 // 2, cpu % 4 // 2) for cpu in range(8))


def pod(uid: str, qos: str, cpuset: str = "") -> Pod:
    notes = {"scheduling.koordinator.sh/resource-status": f'{{"cpuset":"{cpuset}"}}'} if cpuset else None
    labels, kube = {"koordinator.sh/qosClass": qos}, "BestEffort" if qos == "BE" else "Burstable"
    return kept_pod(uid, namespace="default", labels=labels, annotations=notes, phase="Running", qos_class=kube)


def test_e6_cpu_for_best_effort() -> None:
    usage = Usage(40 * CORE, {"ls": 20_500_000_000, "be": 12 * CORE}, {"nginx": CORE})
    pods, apps = (pod("ls", "LS"), pod("be", "BE")), (HostApp("nginx", best_effort=False),)
    found = suppress_share(NODE, pods, usage, apps, threshold_percent=65, least_percent=None)
    assert found == (24_000, 4_000)
    assert suppress_share(NODE, pods, usage, apps, threshold_percent=65, least_percent=40).suppress_milli == 32_000


@pytest.mark.parametrize(
    ("milli", "now", "cpus"), [(24_000, 10, 18), (-5_000, 10, 2), (2_001, 10, 3), (24_000, 20, 24)]
)
def test_e7_number_of_cpus(milli: int, now: int, cpus: int) -> None:
    assert cpu_count(milli, now, 80) == cpus


@pytest.mark.parametrize(
    ("milli", "now", "found"),
    [(24_000, 1_000_000, 1_800_000), (24_000, -1, 2_400_000), (-5_000, 1_000_000, 2_000), (24_000, 2_350_000, None)],
)
def test_e8_the_quota(milli: int, now: int, found: int | None) -> None:
    assert quota(milli, now, 80) == found


def test_e9_whole_cores_first_and_sockets_in_turn() -> None:
    assert sorted(select(3, EIGHT)) == [0, 2, 4]
    assert select(4, EIGHT) == [0, 4, 2, 6]


def test_e9_cpus_are_shared_with_lsr_pods_in_proportion() -> None:
    processors = tuple(Processor(cpu, cpu // 2, 0, 0) for cpu in range(32))
    cpus = select_cpus(10_000, frozenset(range(10)), processors, [pod("lsr", "LSR", "0-7")], ReservedCpus())
    assert len(cpus & set(range(8))) == 2
    assert len(cpus) == 10


def situation(*pods: Pod, node_cpu: int | None = CORE, held: ReservedCpus | None = None) -> SuppressInputs:
    return SuppressInputs(
        NODE, pods, Usage(node_cpu, {}, {}), (), EIGHT, held or ReservedCpus(), frozenset(range(4)), -1
    )


def test_a_node_whose_cpus_all_belong_to_lse_pods_leaves_best_effort_as_it_is() -> None:
    decision = cpu_suppress.decide(ResourceThreshold(enable=True), situation(pod("lse", "LSE", "0-7")), {})
    assert decision.cpus == ()


def test_reserved_cpus_of_the_node_are_kept_from_best_effort() -> None:
    held = ReservedCpus.of({"node.koordinator.sh/reservation": '{"reservedCPUs":"0,4"}'})
    decision = cpu_suppress.decide(ResourceThreshold(enable=False), situation(pod("be", "BE"), held=held), {})
    assert decision.cpus[0].folders == frozenset({1, 2, 3, 5, 6, 7})
    assert decision.quota_us == -1


def test_without_a_sample_or_a_switch_nothing_happens() -> None:
    for threshold, node_cpu in ((ResourceThreshold(enable=True), None), (ResourceThreshold(), CORE), (None, CORE)):
        decision = cpu_suppress.decide(threshold, situation(pod("be", "BE"), node_cpu=node_cpu), {})
        assert (decision.cpus, decision.quota_us, decision.status) == ((), None, {})


def test_the_quota_is_removed_once_only() -> None:
    first = cpu_suppress.decide(ResourceThreshold(enable=True), situation(pod("be", "BE")), {})
    again = cpu_suppress.decide(ResourceThreshold(enable=True), situation(pod("be", "BE")), first.status)
    assert (first.quota_us, again.quota_us) == (-1, None)
    assert again.status == {"cpuset": Policy.USING, "cfsQuota": Policy.RECOVERED}


def test_with_a_static_kubelet_only_containers_are_suppressed() -> None:
    held = ReservedCpus.of({"kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static"}'})
    whole, narrow = cpu_suppress.decide(ResourceThreshold(enable=True), situation(pod("be", "BE"), held=held), {}).cpus
    assert cpu_list(whole.folders or ()) == "0-7"
    assert narrow.folders is None
    assert narrow.containers
