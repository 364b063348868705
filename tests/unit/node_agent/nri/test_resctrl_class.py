"""The resctrl group of a pod from its first instant: requests of a runtime, on files laid out as resctrl's."""

from pathlib import Path
from typing import Any

import pytest

from services.node_agent.hook_server.hook_answers import HookAnswers
from services.node_agent.nri import messages
from services.node_agent.nri.hooked_requests import NodeCgroups
from services.node_agent.nri.node_hooks import missing_at_start
from services.node_agent.nri.plugin import NriPlugin
from services.node_agent.qos_manager.strategies.resctrl import ANNOTATION
from services.node_agent.runtime_hooks.container_hooks import HookFailed
from services.node_agent.runtime_hooks.hook_records import HookRecords
from services.node_agent.runtime_hooks.hook_stages import disabled_stages
from services.node_agent.runtime_hooks.resctrl_class import JOINED_LATER, NAME, resctrl_class
from shared.runtime_hooks.messages import ContainerResourceHookRequest
from tests.unit.node_agent.kernel.resctrl_tree import OWN, ResctrlTree, cgroups_of


class Node:
    """A plugin whose only hook is that of resctrl."""

    def __init__(self, folder: Path, *, supported: bool = True, fail: bool = False, disabled: str = "") -> None:
        self.tree = ResctrlTree(folder)
        if supported:
            self.tree.supported()
        self.records = HookRecords(None, 0)
        self.hooks = {NAME: resctrl_class(self.tree.groups.make)}
        self.cgroups = NodeCgroups(remove_group=self._remove)
        self.plugin = NriPlugin(
            self.hooks, lambda _: None, self.cgroups, records=self.records, stop_at_failure=fail,
            disabled=disabled_stages(disabled),
        )  # fmt: skip

    def _remove(self, uid: str) -> None:
        self.tree.emptied(uid)
        self.tree.groups.remove(uid)

    def call(self, method: str, request: Any, response: Any) -> Any:
        return response.FromString(self.plugin.answer(messages.PLUGIN, method, request.SerializeToString()))

    def run(self, pod: Any) -> None:
        self.call("RunPodSandbox", messages.RunPodSandboxRequest(pod=pod), messages.Empty)

    def remove(self, pod: Any) -> None:
        self.call("RemovePodSandbox", messages.RemovePodSandboxRequest(pod=pod), messages.Empty)

    def create(self, pod: Any) -> Any:
        request = messages.CreateContainerRequest(pod=pod, container={"id": "c1", "name": "main"})
        return self.call("CreateContainer", request, messages.CreateContainerResponse).adjust.linux.resources

    def newest_failures(self) -> dict[str, str]:
        (report,) = self.records.reports(1)
        return dict(report.containers[-1].failed)


def sandbox(text: str = OWN, sid: str = "s1") -> dict[str, Any]:
    annotations = {ANNOTATION: text} if text else {}
    return {"id": sid, "name": "p", "namespace": "d", "uid": "u1", "annotations": annotations}


def test_a_container_starts_in_the_group_that_was_made_with_its_pod(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(sandbox())
    assert node.tree.names() == ["koordlet-u1"]
    assert (node.tree.root / "koordlet-u1/schemata").read_text() == "L3:0=3f;1=3f;\n"
    assert node.create(sandbox()).rdt_class.value == "koordlet-u1"
    assert node.plugin.applied == {NAME: 1}
    assert not node.create(sandbox("")).HasField("rdt_class")


def test_a_pod_that_started_without_the_agent_gets_its_group_with_its_next_container(tmp_path: Path) -> None:
    assert Node(tmp_path).create(sandbox()).rdt_class.value == "koordlet-u1"


@pytest.mark.parametrize("as_event", [False, True])
def test_the_group_goes_with_the_last_sandbox_of_its_pod(tmp_path: Path, *, as_event: bool) -> None:
    node = Node(tmp_path)

    def remove(pod: Any) -> None:
        if as_event:  # runtimes with NRI before 0.12
            event = messages.StateChangeEvent(event=messages.REMOVE_POD_SANDBOX, pod=pod)
            node.call("StateChange", event, messages.Empty)
        else:
            node.remove(pod)

    node.run(sandbox())
    node.run(sandbox(sid="s2"))
    remove(sandbox())
    assert node.tree.names() == ["koordlet-u1"], "the pod runs in a newer sandbox"
    remove(sandbox(sid="s2"))
    assert node.tree.names() == []


def test_the_group_of_a_pod_that_started_before_the_agent_is_left_to_the_reconciler(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.create(sandbox())
    node.remove(sandbox())
    assert node.tree.names() == ["koordlet-u1"]


@pytest.mark.parametrize(("text", "supported", "why"), [("[]", True, "Expected"), (OWN, False, "has no resctrl")])
def test_a_container_gets_no_class_without_a_group_and_with_the_policy_fail_does_not_start(
    text: str, why: str, tmp_path: Path, *, supported: bool
) -> None:
    node = Node(tmp_path / "ignore", supported=supported)
    node.run(sandbox(text))
    assert not node.create(sandbox(text)).HasField("rdt_class")
    assert why in node.newest_failures()[NAME]
    strict = Node(tmp_path / "fail", supported=supported, fail=True)
    with pytest.raises(HookFailed, match=f"hook Resctrl for pod d/p: .*{why}"):
        strict.run(sandbox(text))


def test_it_subscribes_to_pods_and_containers_unless_a_stage_is_disabled(tmp_path: Path) -> None:
    run, remove, create = 1, 4, 8
    assert Node(tmp_path / "all").plugin.events == run + remove + create
    assert Node(tmp_path / "some", disabled="PreRemoveRunPodSandbox,PreRunPodSandbox").plugin.events == create


def test_a_container_that_was_created_without_the_agent_is_recorded_as_joining_later(tmp_path: Path) -> None:
    node = Node(tmp_path)
    containers = [{"id": "c1", "pod_sandbox_id": "s1", "name": "main"}]
    request = messages.SynchronizeRequest(pods=[sandbox()], containers=containers)
    node.call("Synchronize", request, messages.SynchronizeResponse)
    assert node.newest_failures() == {NAME: JOINED_LATER}
    assert missing_at_start(node.hooks, cgroups_of("a"), "c") == {NAME: JOINED_LATER}


def test_a_runtime_proxy_cannot_carry_the_class(tmp_path: Path) -> None:
    node = Node(tmp_path)
    answers = HookAnswers(node.hooks, lambda _: None, node.cgroups, records=node.records, stop_at_failure=True)
    request = ContainerResourceHookRequest(
        pod_meta={"name": "p", "namespace": "d", "uid": "u1"},
        container_meta={"name": "main"},
        pod_annotations={ANNOTATION: OWN},
    )
    with pytest.raises(HookFailed, match="cannot add RDT class koordlet-u1; use NRI"):
        answers.answer("PreCreateContainer", request.SerializeToString())
