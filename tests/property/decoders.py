"""Every decoder of what others send or write: its entry point, its declared error, and messages that it accepts."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from services.gateway.kube_api.decoding import API_TYPES, Decoder, status_of
from services.gateway.webhooks import admission_review
from services.node_agent.hook_server.hook_answers import HookAnswers
from services.node_agent.nri import frames
from services.node_agent.nri.hooked_requests import NodeCgroups
from services.node_agent.nri.messages import PLUGIN, CreateContainerRequest
from services.node_agent.nri.plugin import NriPlugin
from services.node_agent.pod_resources.allocated_devices import ListPodResourcesResponse, with_allocated_devices
from services.node_agent.runtime_hooks import gpu_environment
from services.node_agent.runtime_hooks.batch_resource import SPEC
from services.node_agent.runtime_hooks.cgroup_hooks import CGROUP_HOOKS, as_hook
from services.node_agent.runtime_hooks.container_hooks import ContainerContext, HookFailed
from services.node_agent.runtime_hooks.cpuset import CpuRule
from services.node_agent.runtime_hooks.hook_records import HookRecords
from services.node_agent.runtime_hooks.hook_rules import HookRules
from services.node_agent.states_informer.annotations import resource_status
from services.node_agent.topology.kubelet_cpu_manager import CHECKPOINT, BadKubeletFile, read_assignments, read_config
from services.runtime_proxy import cri_messages as cri
from services.runtime_proxy.docker.container_config import SANDBOX, SANDBOX_ID, TYPE, ContainerConfig, HostConfig
from services.runtime_proxy.docker.docker_calls import call_of
from services.runtime_proxy.docker.docker_calls import decode as decode_docker
from services.runtime_proxy.docker.restore import Inspected, known_of
from services.runtime_proxy.hooked_calls import is_pod, merge_answer
from services.runtime_proxy.known_containers import KnownContainer, container_of, pod_of
from services.runtime_proxy.merge_rules import write_create_container
from services.scheduler.extender_server.api_types import ExtenderArgs, ExtenderBindingArgs, ExtenderPreemptionArgs
from services.scheduler.extender_server.http_api import decode_args
from services.scheduler.plugins.node_numa_resource.allocation_annotations import allocation_of
from services.simulator.api import request_execution
from services.simulator.api.api_transaction import ApiTransaction
from services.simulator.api.resource_kinds import BY_NAME
from services.simulator.decide import begin
from services.simulator.settings import SimulatorSettings
from services.simulator.state import SimulatorState
from services.slo_controller.overcommit.node_capacity_and_reservation import reserved_of
from services.slo_controller.overcommit.usage_sums import zones_of
from shared.admission.rejection import AdmissionRejected
from shared.agents import actions, device_inventory, node_pods, node_slo, receipt, report
from shared.agents.decoding import BadMessage
from shared.domain import quota_charge
from shared.errors import KoordError
from shared.kube.device import HAMI_CORE, ISOLATION_PROVIDER
from shared.kube.elastic_quota import declared
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.oom_score_annotations import OOM_SCORE_ADJ, OOM_SCORE_ADJ_SPEC
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity
from shared.kube.system_annotations import DEVICE_ALLOCATED, RESOURCE_STATUS
from shared.log import announcements
from shared.runtime_hooks import stages
from shared.runtime_hooks.messages import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)
from shared.runtime_hooks.registration import BadRegistration, read_registration

NODE = "n"


class Fuzzed(NamedTuple):
    """A decoder.

    Attributes:
        decode: takes the bytes of a message.
        errors: the declared errors; any other exception is a fault.
        accepted: messages that it accepts, from which others are made.
    """

    decode: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    accepted: tuple[bytes, ...]


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _annotated(read: Callable[[Metadata], object], name: str) -> Callable[[bytes], object]:
    """Returns a decoder of an annotation: a JSON document is a text, so bytes that are none are replaced."""

    def decode(data: bytes) -> object:
        return read(Metadata(name=NODE, namespace="d", annotations={name: data.decode(errors="replace")}))

    return decode


def _kubelet_file(read: Callable[[Path], object], name: str) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        with TemporaryDirectory(prefix="koord-fuzz-") as folder:
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_bytes(data)
            return read(Path(folder))

    return decode


def _inventory(data: bytes) -> object:
    return device_inventory.devices_of(device_inventory.decode(data, NODE))


def _quota(data: bytes) -> object:
    found = Decoder("elasticquotas").object(data)
    assert isinstance(found, dict), "a resource without a type of its own is plain JSON"
    msgspec.convert(found.get("metadata") or {}, Metadata)  # the API server keeps no other metadata
    return declared(found)


_POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "d", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "annotations": {"koordinator.sh/x": "{}"}},
    "spec": {"nodeName": NODE, "priority": 9000, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
    "status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]},
}  # fmt: skip
_LIST = {"metadata": {"resourceVersion": "9", "continue": ""}, "items": [_POD]}
_REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "request": {"uid": "r", "operation": "CREATE", "namespace": "d", "userInfo": {"username": "me"}, "object": _POD},
}
_QUOTA = {
    "metadata": {"name": "q", "namespace": "d", "labels": {"quota.scheduling.koordinator.sh/parent": "root"}},
    "spec": {"max": {"cpu": "4"}, "min": {"cpu": 1}},
}
_STATUS = b'{"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":{"cpu":"4"}}]}'
_VICTIMS = {"Pod": _POD, "NodeNameToMetaVictims": {NODE: {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}}
_REPORT = report.Report(
    node=NODE,
    boot="b",
    seq=7,
    at_ns=1_800_000_000 * SECOND,
    interval_ns=15 * SECOND,
    node_usage=report.Series((1_000, 2_001), (3_500_000, 3_400_000), (2 << 30, 2 << 30)),
    system_usage=report.Series((1_000, 2_001), (500_000, 400_000), (1 << 30, 1 << 30)),
    best_effort_usage=report.Series((1_000, 2_001), (), (1 << 30, 1 << 30)),
    pods=(report.PodSum("0f1c-22", 3_000_000, 2, 1_400_000, 4 << 30, 2, 2 << 30),),
)
_ENTRY = announcements.Entry("koord.cluster.PodBound.v1", "scheduling/4", b'{"pod":"d/p"}', b"d" * 32)


_INVENTORY = device_inventory.encode(
    node=NODE,
    boot="b",
    seq=1,
    at_ns=1_800_000_000 * SECOND,
    devices=device_inventory.Devices(
        devices=(
            device_inventory.DeviceFound(
                "gpu",
                0,
                True,
                "GPU-0",
                {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": 80 << 30},
                pcie_root="pci0000:3a",
                conditions=(device_inventory.DeviceCondition("Healthy", "False", "Xid79"),),
                virtual_functions=(
                    device_inventory.VirtualFunctionGroup((device_inventory.VirtualFunction("0000:3b:00.1"),)),
                ),
            ),
        ),
        unread={"rdma": "no sysfs"},
        labels={"node.koordinator.sh/gpu-vendor": "nvidia"},
        partitions={"1": (device_inventory.Partition((0,), "NVLink", "400Gi"),)},
    ),
)


def _agents() -> Iterator[tuple[str, Fuzzed]]:
    requested = actions.ActionReport(node=NODE, boot="b", seq=1, at_ns=1, action=actions.PodsRequested())
    yield "action", Fuzzed(lambda data: actions.decode(data, NODE), (BadMessage,), (actions.encode(requested),))
    yield "report", Fuzzed(lambda data: report.decode(data, NODE), (BadMessage,), (report.encode(_REPORT),))
    yield "inventory", Fuzzed(_inventory, (BadMessage,), (_INVENTORY,))
    pods = node_pods.encode(node_pods.NodePods(NODE, 1, 2, None, {}, (msgspec.convert(_POD, Pod),)))
    yield "node pods", Fuzzed(lambda data: node_pods.decode(data, NODE), (BadMessage,), (pods,))
    yield "node slo", Fuzzed(lambda data: node_slo.decode(data, NODE), (BadMessage,), (b'{"node":"n","epoch":1,"seq":2,"spec":{}}',))  # fmt: skip
    yield "receipt", Fuzzed(receipt.decode, (msgspec.DecodeError,), (b'{"kind":"action","boot":"b","seq":1}',))


_ALLOCATED = (
    b'{"gpu":[{"minor":1,"id":"GPU-1","resources":{"koordinator.sh/gpu-memory":"20Gi",'
    b'"koordinator.sh/gpu-memory-ratio":"25"}}],"rdma":[{"minor":0,"extension":{"vfs":[{"busID":"0000:1f:00.2"}]}}]}'
)


def _hooks() -> Iterator[tuple[str, Fuzzed]]:
    """Yields decoders of what the container runtime and the kubelet send, and of the annotation that hooks read."""
    labels = {ISOLATION_PROVIDER: HAMI_CORE}
    hook = gpu_environment.gpu_environment("/lib.so", monitor=False)  # nothing is made on this machine
    plugin = NriPlugin({gpu_environment.NAME: hook}, lambda _: None, stop_at_failure=True, records=HookRecords(None, 0))

    def run(data: bytes) -> object:
        annotations = {DEVICE_ALLOCATED: data.decode(errors="replace")}
        return hook(ContainerContext("d/p", "u", labels, annotations, "c"))

    pod = {"name": "p", "namespace": "d", "uid": "u", "annotations": {DEVICE_ALLOCATED: _ALLOCATED.decode()}}
    request = CreateContainerRequest(pod=pod, container={"name": "c"}).SerializeToString()
    yield "annotation of hooks", Fuzzed(run, (HookFailed,), (_ALLOCATED,))
    yield (
        "CreateContainer",
        Fuzzed(partial(plugin.answer, PLUGIN, "CreateContainer"), (KoordError,), (request,)),
    )
    framed = frames.encode(frames.Frame(frames.PLUGIN_CONNECTION, 1, frames.REQUEST, request))
    yield "frames", Fuzzed(lambda data: list(frames.FrameReader().feed(data)), (frames.BadFrame,), (framed,))
    yield from _cgroup_hooks()
    yield from _hook_service()
    pods = [{"name": "p", "namespace": "d", "containers": [{"name": "c"}]}]
    answer = ListPodResourcesResponse(pod_resources=pods).SerializeToString()
    listed = {"d/p": _ALLOCATED.decode()}
    yield "pod resources", Fuzzed(lambda data: with_allocated_devices(data, listed), (DecodeError,), (answer,))


_BATCH = (
    b'{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-memory":"1Gi"}}}}'
)
_STATUS = b'{"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":{"cpu":"4"}}]}'


def _cgroup_hooks() -> Iterator[tuple[str, Fuzzed]]:
    """Yields the annotations of pods that are known from their runtime alone, for the hooks that set values of cgroups."""
    rule = CpuRule({0: "0-7"}, {}, "", static=False)
    rules = HookRules(frozenset(CGROUP_HOOKS), cpus=rule, online=frozenset(range(8)))
    hooks = {name: as_hook(name, lambda: rules, lambda: True) for name in CGROUP_HOOKS}
    plugin = NriPlugin(
        hooks, lambda _: None, NodeCgroups(rules=lambda: rules), stop_at_failure=True, records=HookRecords(None, 0)
    )

    def create(annotation: str, data: bytes) -> object:
        labels = {"koordinator.sh/qosClass": "BE"}
        pod = {"name": "p", "uid": "u", "labels": labels, "annotations": {annotation: data.decode(errors="replace")}}
        request = CreateContainerRequest(pod=pod, container={"name": "c"}).SerializeToString()
        return plugin.answer(PLUGIN, "CreateContainer", request)

    for annotation, accepted in (
        (SPEC, _BATCH),
        (RESOURCE_STATUS, _STATUS),
        (OOM_SCORE_ADJ_SPEC, b'{"c":900}'),
        (OOM_SCORE_ADJ, b"-500"),
    ):
        yield f"hooks: {annotation}", Fuzzed(partial(create, annotation), (HookFailed,), (accepted,))


def _hook_service() -> Iterator[tuple[str, Fuzzed]]:
    """Yields what a hook server sends to the runtime proxy, and the proxy to the agent."""
    rules = HookRules(frozenset(CGROUP_HOOKS), online=frozenset(range(8)))
    hooks = {name: as_hook(name, lambda: rules, lambda: True) for name in CGROUP_HOOKS}
    agent = HookAnswers(
        hooks, lambda _: None, NodeCgroups(rules=lambda: rules), records=HookRecords(None, 0), stop_at_failure=True
    )
    annotations = {SPEC: _BATCH.decode(), OOM_SCORE_ADJ: "5"}
    labels = {"koordinator.sh/qosClass": "BE"}
    request = {"container_meta": {"name": "c"}, "pod_labels": labels, "pod_annotations": annotations}
    container = ContainerResourceHookRequest(**request, container_envs={"A": "1"}).SerializeToString()
    pod = PodSandboxHookRequest(labels=labels, annotations=annotations).SerializeToString()
    for stage in (stages.CREATE_CONTAINER, stages.UPDATE_CONTAINER, stages.AFTER_START_CONTAINER):
        yield f"hooks: {stage}", Fuzzed(partial(agent.answer, stage), (KoordError,), (container,))
    yield "hooks: PreRunPodSandbox", Fuzzed(partial(agent.answer, stages.RUN_POD_SANDBOX), (KoordError,), (pod,))

    def merged(data: bytes) -> object:
        create = cri.CreateContainerRequest(config={"envs": [{"key": "A", "value": b"1"}]})
        subject = container_of(pod_of(create.sandbox_config))
        merge_answer(subject, ContainerResourceHookResponse.FromString(data))
        write_create_container(create, subject)
        return create.SerializeToString()

    answer = ContainerResourceHookResponse(container_resources={"cpu_shares": 5, "cpuset_cpus": "0-3"})
    yield "hook answer", Fuzzed(merged, (DecodeError, KoordError), (answer.SerializeToString(),))
    yield from _docker(ContainerResourceHookResponse(container_resources={"cpu_shares": 5}))
    read = partial(read_registration, "f.json")
    good = b'{"remote-endpoint":"/s","failure-policy":"Fail","runtime-hooks":["PreRunPodSandbox"]}'
    yield "registration of hooks", Fuzzed(read, (BadRegistration,), (good,))


def _docker(answer: Any) -> Iterator[tuple[str, Fuzzed]]:
    """Yields what a kubelet sends to Docker's API, with an answer about it."""
    known = known_of([Inspected("s", "/k8s_POD_p_n_u_0", ContainerConfig(labels={TYPE: SANDBOX}), HostConfig())], "")
    sandbox = known.pods["s"]

    def hooked(operation: str, data: bytes) -> object:
        known.containers["c"] = KnownContainer("s", container_of(sandbox))
        request = decode_docker(operation, "c", "k8s_c_p_n_u_0", data, "systemd")
        call = call_of(known, request)
        subject = call.subject(known, request)
        merge_answer(subject, PodSandboxHookResponse() if is_pod(subject) else answer)
        assert call.write is not None
        call.write(request, subject)
        return msgspec.json.encode(request.body)

    host = {"CpuShares": 2, "NanoCpus": 5, "CgroupParent": "kubepods-podX.slice"}
    create = {"Env": ["A=1", "B"], "Labels": {SANDBOX_ID: "s", "annotation.a": "b"}, "HostConfig": host}
    pod = {"Labels": {TYPE: SANDBOX}, "HostConfig": None}
    yield "docker: create", Fuzzed(partial(hooked, "create"), (KoordError,), (_json(create), _json(pod)))
    yield "docker: update", Fuzzed(partial(hooked, "update"), (KoordError,), (_json(host),))


def _cluster() -> Iterator[tuple[str, Fuzzed]]:
    # A body that is no JSON of the API ends the request, which is repeated.
    errors = (msgspec.DecodeError,)
    for resource in sorted({*API_TYPES, "elasticquotas"}):
        decoder = Decoder(resource)
        yield f"list of {resource}", Fuzzed(decoder.page, errors, (_json(_LIST),))
        changes = (
            _json({"type": "MODIFIED", "object": _POD}),
            _json({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}),
            _json({"type": "ERROR", "object": {"code": 410, "message": "gone"}}),
        )
        yield f"watch of {resource}", Fuzzed(decoder.watch_event, errors, changes)
        yield f"object of {resource}", Fuzzed(decoder.object, errors, (_json(_POD),))
    yield "status", Fuzzed(status_of, (), (b'{"code":409,"message":"m"}', b"<html>"))
    yield "quota", Fuzzed(_quota, (*errors, BadQuantity, AdmissionRejected), (_json(_QUOTA),))
    yield "admission review", Fuzzed(admission_review.read, (admission_review.BadReview,), (_json(_REVIEW),))


def _requests() -> Iterator[tuple[str, Fuzzed]]:
    charge = quota_charge.encode(quota_charge.ChargeRequest(1, 2, {"cluster": 3}, (("u",),)))
    response = quota_charge.encode(quota_charge.ChargeResponse(1, 2, charged={"u": "q"}))
    bad = (quota_charge.BadChargeMessage,)
    yield "charge request", Fuzzed(quota_charge.decode_request, bad, (charge,))
    yield "charge response", Fuzzed(quota_charge.decode_response, bad, (response,))
    for kind, message in (
        (ExtenderArgs, {"Pod": _POD, "NodeNames": [NODE]}),
        (ExtenderArgs, {"Pod": _POD, "Nodes": {"items": [{"metadata": {"name": NODE}}]}}),
        (ExtenderBindingArgs, {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": NODE}),
        (ExtenderPreemptionArgs, _VICTIMS),
    ):
        name = f"extender: {kind.__name__} of {'.'.join(message)}"
        yield name, Fuzzed(lambda data, kind=kind: decode_args(data, kind), (KoordError,), (_json(message),))  # type: ignore[misc]  # a default binds the loop's value


def _simulator() -> Iterator[tuple[str, Fuzzed]]:
    state, settings = SimulatorState(), SimulatorSettings()
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    place: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}

    def execute(verb: str, data: bytes) -> object:
        api = ApiTransaction(state, seed=1, timings=settings.timings, now_ns=SECOND)
        begin(api, settings)
        api.create(BY_NAME["pods"], msgspec.convert({**place, "spec": spec}, Pod))
        return request_execution.execute(api, request_execution.Request(verb, data))

    new = {**place, "metadata": {"generateName": "new-"}, "spec": spec}
    accepted = {
        "create": (_json(new), _json({"items": [new]})),
        "patch": (_json({**place, "patch": {"metadata": {"labels": {"a": None}}}, "subresource": ""}),),
        "delete": (_json({**place, "gracePeriodSeconds": 1}),),
    }
    for verb, messages in accepted.items():
        # A bad request is answered: no error may leave the step.
        yield f"simulator's {verb}", Fuzzed(partial(execute, verb), (), messages)
    yield "simulator's get", Fuzzed(lambda data: request_execution.get(state, data), (), (_json(place),))
    pods = {"apiVersion": "v1", "kind": "Pod", "limit": 1, "continue": "d/a"}
    yield "simulator's list", Fuzzed(lambda data: request_execution.list_(state, data), (), (_json(pods),))


def _log() -> Iterator[tuple[str, Fuzzed]]:
    batch = announcements.encode(announcements.Batch("cluster", 1, 5, b"p" * 32, 7, [_ENTRY, _ENTRY]))
    beacon = announcements.encode(announcements.Beacon("cluster", 1, 5, b"d" * 32))
    # The follower drops a message that raises, and counts it; what it believes of the others is its own matter.
    errors = (msgspec.DecodeError, UnicodeDecodeError)
    yield "batch", Fuzzed(announcements.decode_batch, errors, (batch,))
    yield "beacon", Fuzzed(announcements.decode_beacon, errors, (beacon,))


def _texts() -> Iterator[tuple[str, Fuzzed]]:
    def pod_of(metadata: Metadata) -> Pod:
        return Pod(metadata=metadata)

    for name, read in (
        ("agent", lambda metadata: resource_status(pod_of(metadata))),
        ("scheduler", lambda metadata: allocation_of(metadata.annotations)),
        ("SLO controller", lambda metadata: zones_of(pod_of(metadata))),
    ):
        yield f"resource-status of the {name}", Fuzzed(_annotated(read, RESOURCE_STATUS), (), (_STATUS,))
    reservation = _annotated(lambda metadata: reserved_of(Node(metadata=metadata)), "node.koordinator.sh/reservation")
    yield "reservation", Fuzzed(reservation, (), (b'{"resources":{"cpu":"2"},"reservedCPUs":"0-1"}',))
    config = _kubelet_file(lambda folder: read_config(folder / "config.yaml"), "config.yaml")
    yaml = b"kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: 0-1\nkubeReserved: {cpu: 500m}\n"
    yield "kubelet's configuration", Fuzzed(config, (BadKubeletFile,), (yaml,))
    checkpoint = _kubelet_file(read_assignments, str(CHECKPOINT))
    entries = b'{"policyName":"static","entries":{"u":{"c":"2-3"}},"checksum":1}'
    yield "kubelet's checkpoint", Fuzzed(checkpoint, (BadKubeletFile,), (entries,))


DECODERS: dict[str, Fuzzed] = dict(
    (*_agents(), *_hooks(), *_cluster(), *_requests(), *_simulator(), *_log(), *_texts())
)
