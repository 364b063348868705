"""Interference detection in the QoS manager, on a node made of files: off by default, reports, suppression, restarts."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.node_agent.qos_manager.enforcers.interference_detector import FILE, workload_of
from shared.agents.actions import AnyAction, Interfered, InterferenceEnded, Suppressed
from shared.kube.meta import OwnerReference
from shared.kube.pod import Pod
from tests.support.pods import kept_pod
from tests.unit.node_agent.qos_manager.managed_node import BATCH, LS, WEB, ManagedNode

STRATEGY = {"enable": True, "learnSeconds": 20, "sustainSeconds": 10, "recoverySeconds": 20}
SUPPRESS = {"enable": True, "cpuSuppressThresholdPercent": 60, "cpuSuppressPolicy": "cfsQuota"}


class Neighbours(ManagedNode):
    """A node whose latency-sensitive pod has a PSI file."""

    def seconds(self, count: int, pressure: float, be: float) -> list[AnyAction]:
        """Seconds pass with this cpu pressure of `web` and this usage of the batch pod; returns what is reported."""
        base = self._folder / "cgroup" / ("cpuacct" if self.files.tree.version == 1 else "") / LS
        base.mkdir(parents=True, exist_ok=True)
        (base / "cpu.pressure").write_text(f"some avg10={pressure:.2f} avg60=0 avg300=0 total=1\n")
        before = len(self.actions)
        for _ in range(count):
            self.run_cycle(node=0.5 + be, ls=0.5, be=be)
        return [each for each in self.actions[before:] if not isinstance(each, Suppressed)]

    def enable(self, **strategy: Any) -> None:
        self.slo(resourceUsedThresholdWithBE=SUPPRESS, extensions={"interference": STRATEGY | strategy, "others": 1})


@pytest.fixture(params=[1, 2])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Neighbours:
    return Neighbours(tmp_path, request.param)


def test_it_is_off_by_default_and_reads_nothing(machine: Neighbours, tmp_path: Path) -> None:
    assert machine.seconds(30, 1, 0.0) == []
    assert machine.seconds(30, 80, 1.9) == []
    assert not (tmp_path / "state" / FILE).exists()
    assert not [each for each in machine.qos_manager.gauges() if "interfer" in each.name]


def test_a_pod_beside_a_burner_is_reported_with_the_suspect_and_its_end(machine: Neighbours) -> None:
    machine.enable()
    assert machine.seconds(40, 1, 0.0) == []
    [found] = machine.seconds(14, 80, 1.9)
    assert isinstance(found, Interfered)
    assert (found.pod_uid, found.answer, found.done) == ("ls", "none", "")
    assert [(each.signal, each.value, each.limit) for each in found.deviations] == [("cpuPressure", 80.0, 10.0)]
    assert [(each.pod_uid, each.activity, each.value) for each in found.suspects] == [("be", "cpu", 1900.0)]
    shown = {(each.name, each.labels["pod_name"]): each.value for each in machine.qos_manager.gauges() if "interfer" in each.name}  # fmt: skip
    assert shown[("koord_node_agent_pod_interfered", "ls")] == 1
    assert shown[("koord_node_agent_pod_interference_signal", "ls")] == 80
    assert machine.seconds(40, 1, 0.0) == [InterferenceEnded("ls", "recovered")]


def test_the_answer_suppress_lowers_the_threshold_while_a_pod_is_marked(machine: Neighbours) -> None:
    def quota() -> int:
        return int(machine.files.text("cpu.cfs_quota_us", "kubepods/besteffort").split()[0])

    machine.enable(answer="suppress", suppressPercent=50)
    machine.seconds(60, 1, 0.0)
    before = quota()  # 60 % of 8 cores, without those of web
    [found] = machine.seconds(14, 80, 1.9)
    assert isinstance(found, Interfered)
    assert found.done == "best effort has 50 % of its threshold"
    machine.seconds(2, 80, 1.9)
    assert quota() == before - 240_000  # 30 % of 8 cores less
    machine.seconds(60, 1, 0.0)
    assert quota() == before


def test_without_suppression_there_is_nothing_to_strengthen(tmp_path: Path) -> None:
    machine = Neighbours(tmp_path, 1)
    machine.slo(extensions={"interference": STRATEGY | {"answer": "suppress"}})
    machine.seconds(40, 1, 0.0)
    [found] = machine.seconds(14, 80, 1.9)
    assert isinstance(found, Interfered)
    assert found.done == ""


def test_switching_it_off_ends_the_mark_and_it_learns_on_where_it_was(machine: Neighbours) -> None:
    machine.enable()
    machine.seconds(40, 1, 0.0)
    machine.seconds(14, 80, 1.9)
    machine.slo()
    assert machine.seconds(2, 80, 1.9) == [InterferenceEnded("ls", "disabled")]
    machine.enable()
    machine.seconds(6, 1, 0.0)
    assert len(machine.seconds(14, 80, 1.9)) == 1


def test_an_agent_that_begins_again_ends_the_marks_of_the_one_before(machine: Neighbours, tmp_path: Path) -> None:
    machine.enable()
    machine.seconds(40, 1, 0.0)
    machine.seconds(14, 80, 1.9)
    assert "ls" in json.loads((tmp_path / "state" / FILE).read_bytes())["marks"]
    machine.qos_manager = machine.new_qos_manager()
    machine.pods(BATCH, WEB)
    assert machine.seconds(40, 1, 0.0) == [InterferenceEnded("ls", "recovered")]


def test_a_file_that_cannot_be_read_is_learned_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / FILE).write_text('{"baselines": 3}')
    machine = Neighbours(tmp_path, 1)
    machine.enable()
    machine.seconds(2, 1, 0.0)
    assert "the baselines of pods are learned anew" in caplog.text


@pytest.mark.parametrize("strategy", [{"sustainSeconds": 600}, {"answer": "evict"}, {"enable": "yes"}])
def test_a_strategy_that_cannot_be_is_rejected_with_its_path(
    machine: Neighbours, strategy: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AssertionError):
        machine.enable(**strategy)
    assert f"spec.extensions.interference.{next(iter(strategy))}" in caplog.records[-1].why  # type: ignore[attr-defined]


def _owned(kind: str, name: str) -> Pod:
    owner = OwnerReference(kind=kind, name=name, controller=True)
    pod = kept_pod(uid="u")
    return Pod(metadata=type(pod.metadata)(name="p", namespace="d", uid="u", owner_references=(owner,)))


def test_pods_of_one_controller_are_one_workload_also_over_a_rollout() -> None:
    assert workload_of(_owned("ReplicaSet", "web-7d4b9")) == workload_of(_owned("ReplicaSet", "web-55c8f"))
    assert workload_of(_owned("StatefulSet", "db-1")) == "d/StatefulSet/db-1"
    assert workload_of(_owned("Node", "n")) == "d/Pod/p"
