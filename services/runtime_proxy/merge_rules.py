"""Merges the answer of a hook server into a request of the kubelet. The functions change the messages in place.

Source: spec/node-agent.md 5.6.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from services.runtime_proxy import cri_messages as cri
from shared.runtime_hooks import messages

LEAST_OOM_SCORE, MOST_OOM_SCORE = -1000, 1000
_IF_POSITIVE = ("cpu_period", "cpu_shares", "memory_limit_in_bytes", "memory_swap_limit_in_bytes")
_CPUSETS = ("cpuset_cpus", "cpuset_mems")
_Variable = TypeVar("_Variable")


def overlay_resources(resources: Any, answer: Any) -> None:
    """Changes resources by those of an answer.

    Period, shares, memory and swap count above 0, a quota other than 0 (-1: none), a score within its range. Both
    cpusets are replaced, so that a hook can clear them; keys of `unified` are added; huge pages stay.
    """
    _overlay(resources, answer)
    if LEAST_OOM_SCORE <= answer.oom_score_adj <= MOST_OOM_SCORE:
        resources.oom_score_adj = answer.oom_score_adj
    for name in _CPUSETS:
        setattr(resources, name, getattr(answer, name))


def update_resources(resources: Any, update: Any) -> None:
    """Changes a container's resources as recorded by those of an update of the kubelet: as an answer does, but the score
    stays, an empty cpuset leaves the one before, and huge pages are replaced if it has any.
    """
    _overlay(resources, update)
    if update.hugepage_limits:
        del resources.hugepage_limits[:]
        resources.hugepage_limits.extend(update.hugepage_limits)
    for name in _CPUSETS:
        if cpuset := getattr(update, name):
            setattr(resources, name, cpuset)


def _overlay(resources: Any, other: Any) -> None:
    for name in _IF_POSITIVE:
        if (value := getattr(other, name)) > 0:
            setattr(resources, name, value)
    if other.cpu_quota != 0:
        resources.cpu_quota = other.cpu_quota
    resources.unified.update(other.unified)


def merge_into_pod(subject: Any, answer: Any) -> None:
    """Changes a pod as recorded by an answer. Its resources count where the request to run it has resources: Docker's."""
    subject.labels.update(answer.labels)
    subject.annotations.update(answer.annotations)
    if answer.cgroup_parent:
        subject.cgroup_parent = answer.cgroup_parent
    if subject.HasField("resources") and answer.HasField("resources"):
        overlay_resources(subject.resources, answer.resources)


def merge_into_container(subject: Any, answer: Any) -> None:
    """Changes a container as recorded by an answer; variables of the answer replace all, if it has any."""
    subject.container_annotations.update(answer.container_annotations)
    if answer.HasField("container_resources"):
        overlay_resources(subject.container_resources, answer.container_resources)
    if answer.pod_cgroup_parent:
        subject.pod_cgroup_parent = answer.pod_cgroup_parent
    if answer.container_envs:
        subject.container_envs.clear()
        subject.container_envs.update(answer.container_envs)


def write_run_pod_sandbox(request: Any, subject: Any) -> None:
    """Writes a pod into the request that runs its sandbox."""
    request.config.labels.update(subject.labels)
    request.config.annotations.update(subject.annotations)
    if subject.cgroup_parent:
        request.config.linux.cgroup_parent = subject.cgroup_parent


def write_create_container(request: Any, subject: Any) -> None:
    """Writes a container into the request that creates it."""
    request.config.annotations.update(subject.container_annotations)
    if subject.HasField("container_resources"):
        request.config.linux.resources.CopyFrom(as_cri(subject.container_resources))
    if subject.pod_cgroup_parent:
        request.sandbox_config.linux.cgroup_parent = subject.pod_cgroup_parent
    before = [(None if _text(each.value) is None else each.key, each) for each in request.config.envs]
    envs = written_variables(
        before, subject.container_envs, lambda name, value: cri.KeyValue(key=name, value=value.encode())
    )
    del request.config.envs[:]
    request.config.envs.extend(envs)


def write_update_container(request: Any, subject: Any) -> None:
    """Writes a container into the update of its resources, whose fields that are not declared here stay."""
    request.annotations.update(subject.container_annotations)
    if subject.HasField("container_resources"):
        merged = as_cri(subject.container_resources)
        merged.DiscardUnknownFields()  # those of the container's creation; the update has its own
        for name in merged.DESCRIPTOR.fields_by_name:
            request.linux.ClearField(name)
        request.linux.MergeFrom(merged)


def written_variables(
    before: Iterable[tuple[str | None, _Variable]], envs: Mapping[str, str], made: Callable[[str, str], _Variable]
) -> list[_Variable]:
    """Returns the variables of a container: those of the request in their order, then the new ones by name.

    Args:
        before: those of the request with their names; None: it cannot be sent to a hook server, and stays.
        envs: as answered.
        made: returns a variable from its name and value.
    """
    kept, left = [], dict(envs)
    for name, variable in before:
        if name is None:
            kept.append(variable)
        elif name in left:
            kept.append(made(name, left.pop(name)))
    return [*kept, *(made(name, left[name]) for name in sorted(left))]


def envs_of(variables: Iterable[Any]) -> dict[str, str]:
    """Returns the variables of a request as a hook server gets them: of two of one name the last."""
    return {each.key: text for each in variables if (text := _text(each.value)) is not None}


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def as_cri(resources: Any) -> Any:
    """Returns resources of the hook service as those of CRI."""
    return cri.LinuxContainerResources.FromString(resources.SerializeToString())


def as_hook(resources: Any) -> Any:
    """Returns resources of CRI as those of the hook service."""
    return messages.LinuxContainerResources.FromString(resources.SerializeToString())
