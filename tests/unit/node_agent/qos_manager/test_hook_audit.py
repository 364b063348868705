"""Records of hooks: a container that started without their values is never taken for one that had them."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.node_agent.cgroup.executor import CgroupValue, Executor
from services.node_agent.qos_manager.enforcers.hook_audit import ENDED, UNKNOWN_HOOKS, RuntimeSide
from services.node_agent.runtime_hooks import hook_records
from services.node_agent.runtime_hooks.hook_records import BEING_SET, Expected, HookRecords
from services.node_agent.runtime_hooks.hook_values import HookValues
from shared.agents.actions import MAX_CONTAINERS, ContainerHooks
from tests.unit.node_agent.qos_manager.managed_node import BATCH, BE, CID, GIB, WEB, ManagedNode

LOAD: dict[str, Any] = {"node": 1, "ls": 0.5, "be": 0.3}


@pytest.fixture(params=[1, 2])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> ManagedNode:
    return ManagedNode(tmp_path, request.param)


def state(machine: ManagedNode, cid: str) -> tuple[str, str, tuple[str, ...]]:
    found = machine.hooked[cid]
    return found.state, found.route, found.hooks


def log_of(folder: Path, name: str, cid: str, uid: str) -> None:
    """Makes the link that a kubelet makes once a container has started."""
    pod, _, container = name.partition("_default_")
    (folder / "logs" / f"{name}-{cid}.log").symlink_to(folder / f"pods/default_{pod}_{uid}/{container}/0.log")


def test_a_container_that_runs_without_its_values_is_repaired_by_the_reconciler_within_its_own_age(
    machine: ManagedNode,
) -> None:
    tree = machine.files.tree
    if tree.version == 2:
        (tree.root / "cgroup.controllers").write_text("cpu memory\n")
    procs = tree.root / ("cpu" if tree.version == 1 else "") / BE / CID["be"]
    (procs / "cgroup.procs").write_text(f"{os.getpid()}\n")
    machine.run_cycle(**LOAD)
    assert state(machine, CID["be"]) == ("repaired", "reconciler", ("BatchResource",))
    after_ms = machine.hooked[CID["be"]].after_ms
    assert after_ms is not None
    assert 0 < after_ms < 3_600_000, "this program's age"
    assert state(machine, CID["ls"]) == ("applied", "", ()), "no hook concerns it"
    machine.hooked.clear()
    machine.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"})
    machine.run_cycle(**LOAD)
    assert machine.hooked == {}, "values that change later are no repair"


def test_a_container_that_has_its_values_counts_as_applied(machine: ManagedNode) -> None:
    v1 = machine.files.tree.version == 1
    for folder in (BE, f"{BE}/{CID['be']}"):
        machine.files.put("cpu.shares", folder, "2048" if v1 else "79")
        machine.files.put("cpu.cfs_quota_us", folder, "200000" if v1 else "200000 100000")
        machine.files.put("memory.limit_in_bytes", folder, str(GIB))
    machine.run_cycle(**LOAD)
    assert state(machine, CID["be"]) == ("applied", "", ("BatchResource",))


def test_until_the_runtime_has_answered_only_what_is_wrong_is_noted_and_nothing_is_concluded(
    machine: ManagedNode,
) -> None:
    answered = False
    machine.qos_manager.runtime_side = RuntimeSide(lambda: answered, lambda *_: {"GPUEnvInject": "too late"})
    machine.run_cycle(**LOAD)
    assert {cid: one.failed["BatchResource"] for cid, one in machine.hooked.items()} == {CID["be"]: BEING_SET}
    answered = True
    for _ in range(10):  # the files are compared again after ten seconds
        machine.run_cycle(**LOAD)
    assert state(machine, CID["be"]) == ("notApplied", "reconciler", ("BatchResource",))
    assert machine.hooked[CID["be"]].failed == {"GPUEnvInject": "too late"}
    assert machine.hooked[CID["ls"]].failed == {"GPUEnvInject": "too late"}


def test_containers_that_ended_unseen_are_recorded_with_the_hooks_that_they_lacked(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.run_cycle(**LOAD)
    for number, (name, uid) in enumerate((("be_default_c", "be"), ("ls_default_c", "ls"), ("job_default_x", "job"))):
        log_of(tmp_path, name, str(number) * 64, uid)
    machine.pods(BATCH, WEB)
    machine.run_cycle(**LOAD)
    assert {cid: one.failed for cid, one in machine.hooked.items() if cid not in CID.values()} == {
        "0" * 64: {"BatchResource": ENDED},
        "2" * 64: {UNKNOWN_HOOKS: ENDED},
    }
    assert machine.hooked["2" * 64].pod == "default/job"


def test_a_container_of_a_pod_that_is_not_received_yet_has_not_ended(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.run_cycle(**LOAD)
    machine.files.make("kubepods/besteffort/podnew")
    machine.files.make(f"kubepods/besteffort/podnew/{'3' * 64}")
    log_of(tmp_path, "new_default_c", "3" * 64, "new")
    machine.run_cycle(**LOAD)
    assert "3" * 64 not in machine.hooked


def test_an_agent_that_comes_back_reports_what_an_earlier_run_recorded(machine: ManagedNode) -> None:
    machine.run_cycle(**LOAD)
    before = dict(machine.hooked)
    machine.hooked.clear()
    machine.qos_manager = machine.new_qos_manager()
    machine.run_cycle(**LOAD)
    assert machine.hooked == before
    assert before[CID["be"]].state == "repaired"


def test_a_container_is_not_taken_for_one_that_started_right_after_a_kill_amid_its_repair(
    machine: ManagedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    write = Executor.update_levels

    def write_and_die(executor: Executor, levels: Sequence[list[CgroupValue]]) -> None:
        write(executor, levels)
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Executor, "update_levels", write_and_die)
        machine.run_cycle(**LOAD)
    machine.qos_manager = machine.new_qos_manager()
    machine.run_cycle(**LOAD)
    assert state(machine, CID["be"]) == ("repaired", "reconciler", ("BatchResource",))


def record(number: int, at_ns: int = 0, **fields: Any) -> ContainerHooks:
    return ContainerHooks(f"{number:064x}", "u", "d/p", "c", fields.pop("state", "applied"), at_ns, **fields)


def test_reports_are_bounded_and_repeated_once_a_day() -> None:
    records = HookRecords(None, 0)
    for number in range(MAX_CONTAINERS + 1):
        records.put(record(number))
    assert [len(each.containers) for each in records.reports(1)] == [MAX_CONTAINERS, 1]
    assert list(records.reports(2)) == []
    assert sum(len(each.containers) for each in records.reports(hook_records.REPEAT_INTERVAL_NS)) == MAX_CONTAINERS + 1
    for number in range(hook_records.MOST + 5):
        records.put(record(number))
    assert len(list(records.reports(3))) == hook_records.MOST // MAX_CONTAINERS


def test_records_of_containers_that_are_gone_are_dropped_but_not_those_of_new_ones(tmp_path: Path) -> None:
    records, later_ns = HookRecords(tmp_path, 0), 2 * hook_records.KEPT_UNSEEN_NS
    records.load()
    for number, at_ns in ((1, 0), (2, 0), (3, later_ns)):
        records.put(record(number, at_ns))
    records.flush(later_ns)
    records.keep({record(1).container_id}, later_ns)
    again = HookRecords(tmp_path, 7)
    again.load()
    assert [record(number).container_id in again for number in (1, 2, 3)] == [True, False, True]
    assert again.since_ns == 0


def test_a_torn_line_loses_nothing_before_it(tmp_path: Path) -> None:
    records = HookRecords(tmp_path, 0)
    records.load()
    records.put(record(1, state="repaired", route="nri", after_ms=900))
    records.flush(0)
    with (tmp_path / hook_records.FILE).open("ab") as file:
        file.write(msgspec.json.encode(record(2))[:30])
    again = HookRecords(tmp_path, 0)
    again.load()
    (report,) = again.reports(1)
    assert report.containers == (record(1, state="repaired", route="nri", after_ms=900),)


def test_the_page_counts_containers_and_has_the_longest_repair() -> None:
    records = HookRecords(None, 0)
    records.put(record(1, route="nri"))
    for number, after_ms in ((2, 700), (3, 200)):
        records.put(record(number, state="repaired", route="reconciler", after_ms=after_ms))
    assert {(each.name.rpartition("_")[2], *each.labels.values()): each.value for each in records.gauges()} == {
        ("hooks", "applied", "nri"): 1,
        ("hooks", "repaired", "reconciler"): 2,
        ("seconds", "reconciler"): 0.7,
    }


def test_a_repair_during_which_the_agent_is_killed_is_recorded_by_its_next_run(machine: ManagedNode) -> None:
    machine.qos_manager.runtime_side = RuntimeSide(lambda: False)
    machine.run_cycle(**LOAD)
    assert state(machine, CID["be"]) == ("notApplied", "reconciler", ())
    machine.qos_manager = machine.new_qos_manager()
    machine.run_cycle(**LOAD)
    assert state(machine, CID["be"]) == ("repaired", "reconciler", ("BatchResource",))


def test_a_container_that_the_runtime_lists_before_it_has_a_cgroup_has_not_ended(tmp_path: Path) -> None:
    machine, cid = ManagedNode(tmp_path, 1), "4" * 64
    machine.run_cycle(**LOAD)
    records, created = (
        machine.qos_manager.hook_records,
        record(4, time.time_ns(), route="nri", hooks=("BatchResource",)),
    )
    records.expect(Expected(replace(created, container_id=cid), HookValues(shares=2048), lambda: BE))
    machine.run_cycle(**LOAD)
    assert machine.hooked[cid].failed == {"BatchResource": BEING_SET}
    machine.files.make(f"{BE}/{cid}")
    machine.files.put("cpu.shares", f"{BE}/{cid}", "2048")
    machine.run_cycle(**LOAD)
    assert state(machine, cid) == ("repaired", "nri", ("BatchResource",))


def test_a_repair_ends_although_the_rules_change_meanwhile(machine: ManagedNode) -> None:
    answered = False
    machine.qos_manager.runtime_side = RuntimeSide(lambda: answered)
    machine.run_cycle(**LOAD)
    assert machine.hooked[CID["be"]].failed == {"BatchResource": BEING_SET}
    machine.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"})  # no quota of its own
    machine.run_cycle(**LOAD)
    assert machine.qos_manager.hook_records.expected[CID["be"]].values.quota_us == -1
    answered = True
    machine.run_cycle(**LOAD)
    assert state(machine, CID["be"]) == ("repaired", "reconciler", ("BatchResource",))


def test_new_rules_keep_what_is_known_of_hooks_at_the_creation(machine: ManagedNode) -> None:
    machine.qos_manager.runtime_side = RuntimeSide(lambda: False)
    machine.run_cycle(**LOAD)
    expected, cid = machine.qos_manager.hook_records.expected, CID["be"]
    known = replace(expected[cid].record, hooks=("GPUEnvInject", "OOMScoreAdj"), failed={"RDMADeviceInject": "no"})
    expected[cid] = expected[cid]._replace(record=known)
    machine.pods(BATCH, WEB)
    machine.run_cycle(**LOAD)
    assert expected[cid].record.hooks == ("BatchResource", "GPUEnvInject")
    assert expected[cid].record.failed == {"RDMADeviceInject": "no"}


def test_behind_a_proxy_a_container_that_ended_unseen_is_not_taken_for_one_without_hooks(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.qos_manager.runtime_side = RuntimeSide(follows_ends=False)
    machine.run_cycle(**LOAD)
    log_of(tmp_path, "be_default_c", "0" * 64, "be")
    machine.pods(BATCH, WEB)
    machine.run_cycle(**LOAD)
    assert machine.hooked.keys() == set(CID.values())


def test_records_that_cannot_be_written_are_tried_again_once_a_minute_and_then_appended(tmp_path: Path) -> None:
    minute_ns, file = hook_records.RETRY_INTERVAL_NS, tmp_path / "state" / hook_records.FILE
    file.parent.write_text("in the way")
    records = HookRecords(file.parent, 0)
    records.load()
    file.parent.unlink()
    records.put(record(1))
    records.flush(minute_ns - 1)
    assert not file.exists()
    records.flush(minute_ns)
    assert len(file.read_bytes().splitlines()) == 2
    records.put(record(2))
    records.flush(minute_ns + 1)
    again = HookRecords(file.parent, 0)
    again.load()
    assert record(1).container_id in again
    assert record(2).container_id in again
    file.unlink()
    file.mkdir()  # an append fails too, and the next attempt is a minute later
    records.put(record(3))
    records.flush(2 * minute_ns)
    file.rmdir()
    records.flush(3 * minute_ns - 1)
    assert not file.exists()
    records.flush(3 * minute_ns)
    assert len(file.read_bytes().splitlines()) == 4
