"""The requests of Docker's API that the proxy intercepts, by the table and with the functions of CRI's calls.

Source: spec/node-agent.md 5.2.
"""

import re
from typing import Any, NamedTuple

import msgspec

from services.runtime_proxy.docker.container_config import (
    SANDBOX_ID,
    ContainerConfig,
    HostConfig,
    KubernetesName,
    container_subject,
    parse_name,
    pod_subject,
    resources_of,
    write_container,
    write_resources,
    written_env,
)
from services.runtime_proxy.hooked_calls import (
    HookedCall,
    forget_container,
    forget_pod,
    is_pod,
    known_container,
    known_pod,
    record_nothing,
    record_update,
    updated_container,
)
from services.runtime_proxy.known_containers import KnownContainer, KnownContainers
from shared.errors import KoordError
from shared.runtime_hooks import stages
from shared.type_error_words import field_fault

_PATH = re.compile(r"(?:/v[0-9.]+)?/containers/(?:(create)|([^/]+)/(start|stop|update)|([^/]+))").fullmatch


class BadRequest(KoordError):
    """A request that cannot be decoded; the text names the field."""


class NotOfKubelet(KoordError):
    """A container that no kubelet creates, or whose pod is not known: no hook could be called for it."""


class UndecodableAnswer(KoordError):
    """Docker's answer to a request is not what its API promises."""


class DockerRequest(NamedTuple):
    """One request.

    Attributes:
        operation: create, start, stop, update or remove.
        container_id: of the path; empty for one that is created.
        pod_sandbox_id: that of a new container; otherwise `container_id`, which may be a sandbox.
        body: of one that is created or updated, as it was sent; changes of hooks are written into it.
        driver: Docker's cgroup driver.
        name, config: of a container that is created.
        update: the resources of an update.
    """

    operation: str
    container_id: str
    pod_sandbox_id: str
    body: dict[str, Any]
    driver: str
    name: KubernetesName = KubernetesName("", "", "", "", 0)
    config: ContainerConfig = ContainerConfig()
    update: HostConfig = HostConfig()


class _Created(msgspec.Struct, frozen=True):
    Id: str


def operation_of(method: str, path: str) -> tuple[str, str] | None:
    """Returns the operation of a request with the id in its path; None: it passes through.

    Args:
        path: decoded, as Docker routes it.
    """
    found = _PATH(path)
    if found is None:
        return None
    create, container, operation, removed = found.groups()
    if method == "DELETE" and (create or removed):
        return "remove", create or removed
    if method != "POST" or removed:
        return None
    return ("create", "") if create else (operation, container)


def decode(operation: str, container_id: str, name: str, data: bytes, driver: str) -> DockerRequest:
    """Returns a request.

    Args:
        name: the query's.
        data: the body.

    Raises:
        BadRequest: it cannot be decoded.
        NotOfKubelet: it creates a container whose name is not one of a kubelet.
    """
    if operation == "create":
        parsed = parse_name(name)
        if parsed is None:
            raise NotOfKubelet(
                f"the name {name!r} is not k8s_<container>_<pod>_<namespace>_<uid>_<attempt>: the runtime proxy creates "
                "containers of a kubelet alone; use Docker's own socket for others"
            )
        body, config = _decoded(f"container {name}", data, ContainerConfig)
        sandbox = config.label(SANDBOX_ID)
        return DockerRequest("create", "", sandbox, body, driver, parsed, config)
    if operation == "update":
        body, update = _decoded(f"update of container {container_id}", data, HostConfig)
        return DockerRequest("update", container_id, container_id, body, driver, update=update)
    return DockerRequest(operation, container_id, container_id, {}, driver)


def call_of(known: KnownContainers, request: DockerRequest) -> HookedCall:
    """Returns what is done about a request. A container and a sandbox are stopped and removed by the same one."""
    if request.operation == "create":
        return _RUN_POD_SANDBOX if request.config.is_sandbox else _CREATE_CONTAINER
    of_pod = request.container_id in known.pods
    if request.operation == "stop":
        return _STOP_POD_SANDBOX if of_pod else _STOP_CONTAINER
    if request.operation == "remove":
        return _REMOVE_POD_SANDBOX if of_pod else _REMOVE_CONTAINER
    return _START_CONTAINER if request.operation == "start" else _UPDATE_CONTAINER


def not_carried(subject: Any) -> str:
    """Returns the reason why a part of an answer does not reach Docker; empty without one."""
    keys = sorted((subject.resources if is_pod(subject) else subject.container_resources).unified)
    return f"Docker's API has no field for {', '.join(keys)}" if keys else ""


def _decoded(what: str, data: bytes, kind: type[Any]) -> tuple[dict[str, Any], Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any]), msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"{what}: {field_fault(error)}") from error


def _created_id(response: bytes) -> str:
    try:
        return msgspec.json.decode(response, type=_Created).Id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableAnswer(f"Docker's answer names no container: {field_fault(error)}") from error


def _new_pod(_: KnownContainers, request: DockerRequest) -> Any:
    return pod_subject(request.name, request.config, request.driver)


def _record_pod(known: KnownContainers, _: Any, subject: Any, response: bytes) -> None:
    known.pods[_created_id(response)] = subject


def _write_pod(request: DockerRequest, subject: Any) -> None:
    write_container(request.body, subject.resources, subject.cgroup_parent, request.driver)


def _new_container(known: KnownContainers, request: DockerRequest) -> Any:
    """Returns the container of a request.

    Raises:
        NotOfKubelet: its sandbox is not known.
    """
    pod = known.pods.get(request.pod_sandbox_id)
    if pod is None:
        name = request.name
        raise NotOfKubelet(
            f"container {name.container} of pod {name.namespace}/{name.pod}: its sandbox "
            f"{request.pod_sandbox_id or '(no label ' + SANDBOX_ID + ')'} is not known; Docker has no such "
            "sandbox"
        )
    return container_subject(pod, request.name, request.config, request.driver)


def _record_container(known: KnownContainers, request: DockerRequest, subject: Any, response: bytes) -> None:
    subject.container_meta.id = _created_id(response)
    known.containers[subject.container_meta.id] = KnownContainer(request.pod_sandbox_id, subject)


def _write_container(request: DockerRequest, subject: Any) -> None:
    write_container(request.body, subject.container_resources, subject.pod_cgroup_parent, request.driver)
    if env := written_env(request.config.env or (), subject.container_envs):
        request.body["Env"] = env


def _updated_container(known: KnownContainers, request: DockerRequest) -> Any | None:
    return updated_container(known, request, resources_of(request.update))


def _write_update(request: DockerRequest, subject: Any) -> None:
    write_resources(request.body, subject.container_resources)


_RUN_POD_SANDBOX = HookedCall(DockerRequest, _new_pod, _record_pod, stages.RUN_POD_SANDBOX, write=_write_pod)
_CREATE_CONTAINER = HookedCall(
    DockerRequest, _new_container, _record_container, stages.CREATE_CONTAINER, write=_write_container
)
_START_CONTAINER = HookedCall(
    DockerRequest, known_container, record_nothing, stages.START_CONTAINER, stages.AFTER_START_CONTAINER
)
_UPDATE_CONTAINER = HookedCall(
    DockerRequest, _updated_container, record_update, stages.UPDATE_CONTAINER, write=_write_update
)
_STOP_CONTAINER = HookedCall(DockerRequest, known_container, forget_container, after=stages.AFTER_STOP_CONTAINER)
_STOP_POD_SANDBOX = HookedCall(DockerRequest, known_pod, forget_pod, after=stages.AFTER_STOP_POD_SANDBOX)
_REMOVE_CONTAINER = HookedCall(DockerRequest, known_container, forget_container)
_REMOVE_POD_SANDBOX = HookedCall(DockerRequest, known_pod, forget_pod)
