"""Cookies of core scheduling.

Few test machines have a kernel with them, so a table rejects the calls that it rejects.
"""

import errno
from collections.abc import Iterable
from pathlib import Path

import pytest

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.core_sched import CoreSchedGroups, CoreSchedUnavailable, KernelCookieApi
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from services.node_agent.runtime_hooks.core_sched_rule import CoreRule
from shared.kube.slo_config import CpuQos, QosClass, QosPolicies, ResourceQos
from tests.support.pods import kept_pod

ON = QosClass(cpu_qos=CpuQos(enable=True))
RULE = CoreRule.of(ResourceQos(policies=QosPolicies(cpu_policy="coreSched"), ls_class=ON, be_class=ON))
OFF = CoreRule.of(ResourceQos())


class Table:
    """Processes and their cookies."""

    def __init__(self, *pids: int) -> None:
        self.cookies = dict.fromkeys(pids, 0)
        self.made = 0

    def get(self, pid: int) -> int:
        if pid not in self.cookies:
            raise OSError(errno.ESRCH, "No such process")
        return self.cookies[pid]

    def create(self, pid: int) -> None:
        self.get(pid)
        self.made += 1
        self.cookies[pid] = self.made

    def share(self, source: int, pids: Iterable[int]) -> None:
        cookie = self.get(source)
        self.cookies.update({pid: cookie for pid in pids if pid in self.cookies})

    def clear(self, pids: Iterable[int]) -> None:
        self.cookies.update({pid: 0 for pid in pids if pid in self.cookies})


def pod(folder: Path, name: str, *pids: int, qos: str = "BE", **labels: str) -> PodCgroups:
    """A pod of one container with processes."""
    cgroup = f"kubepods/pod{name}/c{name}"
    (folder / "cpu" / cgroup).mkdir(parents=True, exist_ok=True)
    (folder / "cpu" / cgroup / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    named = {f"koordinator.sh/{key.replace('_', '-')}": text for key, text in labels.items()}
    labels = {"koordinator.sh/qosClass": qos} | named
    whole = kept_pod(name, labels=labels, phase="Running", qos_class="Burstable")
    return PodCgroups(f"kubepods/pod{name}", {f"c{name}": cgroup}, NodePod(whole, {}, frozenset()))


@pytest.fixture
def table() -> Table:
    return Table(*range(1, 10))


@pytest.fixture
def cookies(tmp_path: Path, table: Table) -> CoreSchedGroups:
    return CoreSchedGroups(Processes(tmp_path, tmp_path / "proc"), table)


def test_pods_of_one_group_share_a_cookie_and_others_do_not(
    cookies: CoreSchedGroups, table: Table, tmp_path: Path
) -> None:
    one, other = pod(tmp_path, "a", 1, 2), pod(tmp_path, "b", 3, core_sched_group_id="mine")
    cookies.reconcile(RULE, [one, other, pod(tmp_path, "c", 4), pod(tmp_path, "sys", 5, qos="SYSTEM")])
    assert table.cookies[1] == table.cookies[2] == table.cookies[4] != 0
    assert table.cookies[3] not in {0, table.cookies[1]}
    assert table.cookies[5] == 0
    shown = [gauge.labels for gauge in cookies.gauges() if gauge.name == "koordlet_container_core_sched_cookie"]
    assert {(each["core_sched_group"], each["core_sched_cookie"]) for each in shown} == {
        ("", str(table.cookies[1])),
        ("mine", str(table.cookies[3])),
    }
    assert list(shown[0]) == [
        "pod_uid", "pod_namespace", "pod_name", "container_name", "container_id", "core_sched_group",
        "core_sched_cookie",
    ]  # fmt: skip


def test_assignments_of_a_group_are_counted_by_outcome(cookies: CoreSchedGroups, table: Table, tmp_path: Path) -> None:
    def counted() -> dict[tuple[str, ...], float]:
        name = "koordlet_core_sched_cookie_manage_status"
        return {tuple(each.labels.values()): each.value for each in cookies.gauges() if each.name == name}

    for _ in range(2):
        cookies.reconcile(RULE, [pod(tmp_path, "a", 1), pod(tmp_path, "b", 99, core_sched_group_id="ended")])
    assert counted() == {("", "succeeded"): 1, ("ended", "failed"): 2}
    cookies.reconcile(RULE, [pod(tmp_path, "a", 1, 2)])
    assert counted() == {("", "succeeded"): 2}


def test_new_processes_join_a_sibling_that_still_lives(cookies: CoreSchedGroups, table: Table, tmp_path: Path) -> None:
    cookies.reconcile(RULE, [pod(tmp_path, "a", 1), pod(tmp_path, "b", 2)])
    del table.cookies[1]
    cookies.reconcile(RULE, [pod(tmp_path, "a", 3), pod(tmp_path, "b", 2)])
    assert table.cookies[3] == table.cookies[2]
    assert table.made == 1


def test_a_group_whose_processes_have_all_ended_gets_a_new_cookie(
    cookies: CoreSchedGroups, table: Table, tmp_path: Path
) -> None:
    cookies.reconcile(RULE, [pod(tmp_path, "a", 1)])
    del table.cookies[1]
    cookies.reconcile(RULE, [pod(tmp_path, "a", 3)])
    assert (table.cookies[3], table.made) == (2, 2)


def test_a_pod_that_leaves_its_group_changes_its_cookie_or_loses_it(
    cookies: CoreSchedGroups, table: Table, tmp_path: Path
) -> None:
    cookies.reconcile(RULE, [pod(tmp_path, "a", 1), pod(tmp_path, "b", 2)])
    shared = table.cookies[2]
    cookies.reconcile(RULE, [pod(tmp_path, "a", 1, core_sched_policy="exclusive"), pod(tmp_path, "b", 2)])
    assert table.cookies[1] not in {0, shared}
    cookies.reconcile(RULE, [pod(tmp_path, "a", 1, core_sched_policy="none"), pod(tmp_path, "b", 2)])
    assert (table.cookies[1], table.cookies[2]) == (0, shared)
    cookies.reconcile(OFF, [pod(tmp_path, "a", 1), pod(tmp_path, "b", 2)])
    assert table.cookies[2] == 0


def test_a_restarted_agent_adopts_its_cookies_and_clears_them_at_the_end(
    cookies: CoreSchedGroups, table: Table, tmp_path: Path
) -> None:
    table.cookies[1] = 77
    cookies.reconcile(RULE, [pod(tmp_path, "a", 1, 2)])
    assert table.cookies[2] == 77
    cookies.release()
    assert set(table.cookies.values()) == {0}


def test_this_kernel_has_cookies_or_a_reason_why_not() -> None:
    try:
        assert KernelCookieApi().get(0) >= 0
    except CoreSchedUnavailable as error:
        assert "CONFIG_SCHED_CORE" in str(error) or "SMT" in str(error)  # noqa: PT017  either is right, by the machine


def test_without_cookies_nothing_is_done(tmp_path: Path) -> None:
    none = CoreSchedGroups(Processes(tmp_path, tmp_path / "proc"), None)
    none.reconcile(RULE, [pod(tmp_path, "a", 1)])
    assert list(none.gauges()) == []
    none.release()
