"""Resctrl groups of pods that the agent has not received: the cgroup decides whether they are there."""

from pathlib import Path

from tests.unit.node_agent.kernel.resctrl_tree import OWN, ResctrlTree
from tests.unit.node_agent.qos_manager.managed_node import WEB, ManagedNode


def test_the_group_of_a_pod_without_a_message_stays_while_the_pod_has_a_cgroup(tmp_path: Path) -> None:
    machine, tree = ManagedNode(tmp_path, 1, "Resctrl=true"), ResctrlTree(tmp_path).supported()
    machine.pods(WEB)
    for uid in ("be", "gone"):
        machine.qos_manager.resctrl.make(uid, OWN)
        tree.emptied(uid)
    for _ in range(25):
        machine.run_cycle(node=1, ls=0.5, be=0.3)
    assert tree.names() == ["koordlet-be"]
