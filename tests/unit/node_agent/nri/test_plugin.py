"""Answers of the agent to requests of a container runtime."""

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from services.node_agent.nri import messages
from services.node_agent.nri.hooked_requests import BadRequest
from services.node_agent.nri.node_hooks import KnownPods
from services.node_agent.nri.plugin import NriPlugin, UnknownMethod
from services.node_agent.runtime_hooks.container_hooks import (
    Adjustment,
    BindMount,
    CharDevice,
    ContainerContext,
    Hook,
    HookFailed,
)
from services.node_agent.runtime_hooks.gpu_environment import gpu_environment
from services.node_agent.runtime_hooks.hook_records import HookRecords
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.agents import node_pods
from shared.agents.node_pods import NodePods
from tests.support.pods import kept_pod

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
GPU_3 = json.dumps({"gpu": [{"minor": 3, "resources": {}}]})
GPU_0 = json.dumps({"gpu": [{"minor": 0, "resources": {}}]})


def plugin(known: Mapping[str, Mapping[str, str]] | None = None, *, fail: bool = False, **hooks: Hook) -> NriPlugin:
    chosen = hooks or {"GPUEnvInject": gpu_environment("/lib.so", monitor=False)}
    return NriPlugin(chosen, (known or {}).get, stop_at_failure=fail, records=HookRecords(None, 0))


def create(on: NriPlugin, annotations: Mapping[str, str], uid: str = "u1") -> Any:
    pod = {"name": "p", "namespace": "default", "uid": uid, "labels": {"a": "b"}, "annotations": annotations}
    request = messages.CreateContainerRequest(pod=pod, container={"id": "c1", "name": "main"})
    found = on.answer(messages.PLUGIN, "CreateContainer", request.SerializeToString())
    return messages.CreateContainerResponse.FromString(found).adjust


def env(adjust: Any) -> dict[str, str]:
    return {each.key: each.value for each in adjust.env}


def test_a_container_gets_the_devices_that_the_scheduler_decided_whatever_its_annotations_say() -> None:
    on = plugin({"u1": {ALLOCATED: GPU_3}, "u2": {}})
    assert env(create(on, {ALLOCATED: GPU_0})) == {"NVIDIA_VISIBLE_DEVICES": "3"}
    assert env(create(on, {ALLOCATED: GPU_0}, uid="u2")) == {}, "its owner wrote the annotation"
    assert on.applied == {"GPUEnvInject": 1}


def test_a_container_that_starts_before_its_pod_is_received_gets_the_devices_of_its_annotations() -> None:
    assert env(create(plugin(), {ALLOCATED: GPU_0})) == {"NVIDIA_VISIBLE_DEVICES": "0"}


def test_allocations_are_those_of_the_newest_message(tmp_path: Path) -> None:
    pods = NodePodsInformer("n", tmp_path)
    found = KnownPods(pods)
    assert found.allocations("u1") is None
    for seq, annotations in enumerate(({ALLOCATED: GPU_0, "koordinator.sh/cpuQOS": "{}"}, {ALLOCATED: GPU_3}), 1):
        pod = kept_pod(uid="u1", annotations=annotations)
        assert pods.receive(node_pods.encode(NodePods("n", 1, seq, pods=(pod,))))
        assert found.allocations("u1") == {ALLOCATED: annotations[ALLOCATED]}
    assert found.allocations("u2") is None


def test_mounts_and_devices_are_passed_to_the_runtime() -> None:
    change = Adjustment({}, (BindMount("/a", "/b"),), (CharDevice("/dev/x", 231, 192),))
    adjust = create(plugin(hook=lambda _: change), {})
    (mount,), (device,) = adjust.mounts, adjust.linux.devices
    assert (mount.source, mount.destination, mount.type, list(mount.options)) == ("/a", "/b", "bind", ["rbind"])
    assert (device.path, device.type, device.major, device.minor) == ("/dev/x", "c", 231, 192)
    assert device.file_mode.value == 0o666


def test_a_folder_of_a_container_is_made_anew_and_writable_by_all(tmp_path: Path) -> None:
    folder = tmp_path / "containers/u1_main"
    folder.mkdir(parents=True)
    (folder / "old").touch()
    change = Adjustment({}, (BindMount(str(folder), "/x", scratch=True),))
    create(plugin(hook=lambda _: change), {})
    assert not list(folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777


def broken(context: ContainerContext) -> Adjustment:
    raise HookFailed("broken", context, "no such card")


def test_a_failed_hook_leaves_the_container_and_with_the_policy_fail_refuses_it() -> None:
    hooks: dict[str, Any] = {"broken": broken, "other": lambda _: Adjustment({"X": "1"})}
    on = plugin(None, **hooks)
    assert env(create(on, {})) == {"X": "1"}
    assert (on.applied, on.failed) == ({"broken": 0, "other": 1}, 1)
    with pytest.raises(HookFailed, match="hook broken for container main of pod default/p: no such card"):
        create(plugin(None, fail=True, **hooks), {})


def test_it_subscribes_to_created_containers_alone_and_takes_every_part_of_a_synchronization() -> None:
    on = plugin()
    configure = messages.ConfigureRequest(runtime_name="containerd", runtime_version="v2.4.2").SerializeToString()
    found = messages.ConfigureResponse.FromString(on.answer(messages.PLUGIN, "Configure", configure))
    assert (found.events, on.runtime) == (8, "containerd v2.4.2")
    for more in (True, False):
        part = messages.SynchronizeRequest(more=more).SerializeToString()
        answer = messages.SynchronizeResponse.FromString(on.answer(messages.PLUGIN, "Synchronize", part))
        assert answer.more is more


def test_requests_that_are_not_ours_are_named() -> None:
    with pytest.raises(UnknownMethod, match="Plugin/StopContainer is not served"):
        plugin().answer(messages.PLUGIN, "StopContainer", b"")
    with pytest.raises(UnknownMethod):
        plugin().answer("other.Service", "Configure", b"")
    with pytest.raises(BadRequest, match="the request of Configure cannot be decoded"):
        plugin().answer(messages.PLUGIN, "Configure", b"\xff")
