"""The table of the calls that the proxy intercepts: stages, what hook servers get, and what is recorded afterwards.

Functions of a request and of the known pods and containers. Source: spec/node-agent.md 5.2.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from services.runtime_proxy import cri_messages as cri
from services.runtime_proxy.answer_check import check_container, check_pod
from services.runtime_proxy.known_containers import KnownContainer, KnownContainers, container_of, pod_of
from services.runtime_proxy.merge_rules import (
    as_hook,
    envs_of,
    merge_into_container,
    merge_into_pod,
    update_resources,
    write_create_container,
    write_run_pod_sandbox,
    write_update_container,
)
from shared.runtime_hooks import stages


class HookedCall(NamedTuple):
    """One call.

    Attributes:
        request: class of its message.
        subject: returns the pod or container as hook servers get it, a message of its own; None: it is not known, and
            no hook runs.
        record: records the call after the runtime has carried it out, from (known, request, subject, the response's
            bytes).
        before, after: stages; empty: none.
        write: writes a subject that an answer has changed into the request.
    """

    request: Any
    subject: Callable[[KnownContainers, Any], Any | None]
    record: Callable[[KnownContainers, Any, Any, bytes], None]
    before: str = ""
    after: str = ""
    write: Callable[[Any, Any], None] | None = None


def merge_answer(subject: Any, answer: Any) -> None:
    """Changes a subject by the answer about it.

    Raises:
        BadAnswer: the answer cannot be used; nothing has changed.
    """
    if is_pod(subject):
        check_pod(subject, answer)
        merge_into_pod(subject, answer)
    else:
        check_container(subject, answer)
        merge_into_container(subject, answer)


def is_pod(subject: Any) -> bool:
    """Reports whether a subject is a pod; it is a container otherwise."""
    return "labels" in subject.DESCRIPTOR.fields_by_name


def pod_labels(subject: Any) -> Mapping[str, str]:
    """Returns the labels of a subject's pod."""
    found: Mapping[str, str] = subject.labels if is_pod(subject) else subject.pod_labels
    return found


def describe(subject: Any) -> str:
    """Returns a subject for people."""
    pod = f"pod {subject.pod_meta.namespace}/{subject.pod_meta.name}"
    return pod if is_pod(subject) else f"container {subject.container_meta.name} of {pod}"


def _new_pod(_: KnownContainers, request: Any) -> Any:
    return pod_of(request.config, request.runtime_handler)


def _record_pod(known: KnownContainers, _: Any, subject: Any, response: bytes) -> None:
    known.pods[cri.RunPodSandboxResponse.FromString(response).pod_sandbox_id] = subject


def known_pod(known: KnownContainers, request: Any) -> Any | None:
    """Returns a copy of the pod that a request names by its sandbox; None: it is not known."""
    return _copied(known.pods.get(request.pod_sandbox_id))


def forget_pod(known: KnownContainers, request: Any, _: Any, __: bytes) -> None:
    """Forgets a pod with its containers."""
    known.remove_pod(request.pod_sandbox_id)


def _new_container(known: KnownContainers, request: Any) -> Any | None:
    """Returns the container of a request; its pod is that of the request if the sandbox is not known.

    The kubelet may have lost the answer to the request that ran the sandbox.
    """
    pod = known.pods.get(request.pod_sandbox_id)
    if pod is None:
        if not request.sandbox_config.metadata.uid:
            return None
        pod = pod_of(request.sandbox_config)
    subject = container_of(pod)
    subject.pod_cgroup_parent = request.sandbox_config.linux.cgroup_parent
    subject.container_meta.name = request.config.metadata.name
    subject.container_meta.attempt = request.config.metadata.attempt
    subject.container_annotations.update(request.config.annotations)
    subject.container_resources.CopyFrom(as_hook(request.config.linux.resources))
    subject.container_envs.update(envs_of(request.config.envs))
    return subject


def _record_container(known: KnownContainers, request: Any, subject: Any, response: bytes) -> None:
    subject.container_meta.id = cri.CreateContainerResponse.FromString(response).container_id
    if request.pod_sandbox_id not in known.pods:
        known.pods[request.pod_sandbox_id] = pod_of(request.sandbox_config)
    known.containers[subject.container_meta.id] = KnownContainer(request.pod_sandbox_id, subject)


def known_container(known: KnownContainers, request: Any) -> Any | None:
    """Returns a copy of the container that a request names; None: it is not known."""
    found = known.containers.get(request.container_id)
    return None if found is None else _copied(found.subject)


def updated_container(known: KnownContainers, request: Any, update: Any) -> Any | None:
    """Returns a container with an update in it; the update alone where the proxy did not see it created.

    Args:
        update: LinuxContainerResources of the hook service.
    """
    subject = known_container(known, request)
    if subject is None:
        return None
    if subject.HasField("container_resources"):
        update_resources(subject.container_resources, update)
    else:
        subject.container_resources.CopyFrom(update)
    return subject


def _updated_container(known: KnownContainers, request: Any) -> Any | None:
    return updated_container(known, request, as_hook(request.linux))


def record_update(known: KnownContainers, request: Any, subject: Any, _: bytes) -> None:
    """Records a container as it was updated."""
    if (found := known.containers.get(request.container_id)) is not None:
        known.containers[request.container_id] = found._replace(subject=subject)


def forget_container(known: KnownContainers, request: Any, _: Any, __: bytes) -> None:
    """Forgets a container."""
    known.containers.pop(request.container_id, None)


def record_nothing(*_: Any) -> None:
    """Records nothing: the call changes no container as hook servers get it."""


def _copied(subject: Any | None) -> Any | None:
    if subject is None:
        return None
    copy = type(subject)()
    copy.CopyFrom(subject)
    return copy


CALLS: Mapping[str, HookedCall] = {
    cri.RUNTIME_SERVICE + name: call
    for name, call in {
        "RunPodSandbox": HookedCall(
            cri.RunPodSandboxRequest, _new_pod, _record_pod, stages.RUN_POD_SANDBOX, write=write_run_pod_sandbox
        ),
        "StopPodSandbox": HookedCall(
            cri.StopPodSandboxRequest, known_pod, forget_pod, after=stages.AFTER_STOP_POD_SANDBOX
        ),
        "CreateContainer": HookedCall(
            cri.CreateContainerRequest,
            _new_container,
            _record_container,
            stages.CREATE_CONTAINER,
            write=write_create_container,
        ),
        "StartContainer": HookedCall(
            cri.StartContainerRequest,
            known_container,
            record_nothing,
            stages.START_CONTAINER,
            stages.AFTER_START_CONTAINER,
        ),
        "UpdateContainerResources": HookedCall(
            cri.UpdateContainerResourcesRequest,
            _updated_container,
            record_update,
            stages.UPDATE_CONTAINER,
            write=write_update_container,
        ),
        "StopContainer": HookedCall(
            cri.StopContainerRequest, known_container, forget_container, after=stages.AFTER_STOP_CONTAINER
        ),
        "RemoveContainer": HookedCall(cri.RemoveContainerRequest, known_container, forget_container),
    }.items()
}
"""The calls by their gRPC method; every other passes through."""
