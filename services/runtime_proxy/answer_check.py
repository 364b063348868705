"""Checks of answers of hook servers: values that a runtime accepts, and not the keys by which a kubelet finds its pods."""

from collections.abc import Mapping
from typing import Any

from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.errors import KoordError

KUBELETS = "io.kubernetes."
"""Prefix of the labels and annotations by which the kubelet knows pods and containers in the runtime's lists."""
_AMOUNTS = ("cpu_period", "cpu_shares", "memory_limit_in_bytes", "memory_swap_limit_in_bytes")


class BadAnswer(KoordError):
    """An answer that is not used; the text names field and value."""


def check_pod(subject: Any, answer: Any) -> None:
    """Checks the answer about a pod.

    Raises:
        BadAnswer: it cannot be used.
    """
    _check_keys("labels", subject.labels, answer.labels)
    _check_keys("annotations", subject.annotations, answer.annotations)
    _check_parent("cgroup_parent", answer.cgroup_parent)
    if subject.HasField("resources"):
        _check_resources("resources", answer.resources)


def check_container(subject: Any, answer: Any) -> None:
    """Checks the answer about a container.

    Raises:
        BadAnswer: it cannot be used.
    """
    _check_keys("container_annotations", subject.container_annotations, answer.container_annotations)
    _check_parent("pod_cgroup_parent", answer.pod_cgroup_parent)
    for name in answer.container_envs:
        if not name or "=" in name or "\0" in name + answer.container_envs[name]:
            raise BadAnswer(f"container_envs has {name!r}, which is no name of a variable or has no valid value")
    _check_resources("container_resources", answer.container_resources)


def _check_resources(name: str, resources: Any) -> None:
    for field in _AMOUNTS:
        if (value := getattr(resources, field)) < 0 and value != -1:
            raise BadAnswer(f"{name}.{field} is {value}; give an amount, or 0 or -1 to leave the request's")
    if resources.cpu_quota < -1:
        raise BadAnswer(f"{name}.cpu_quota is {resources.cpu_quota}; -1 stands for no quota")
    for field in ("cpuset_cpus", "cpuset_mems"):
        try:
            parse_cpus(getattr(resources, field))
        except BadCpuList as error:
            raise BadAnswer(f"{name}.{field}: {error}") from error


def _check_keys(field: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for key in after:
        if key.startswith(KUBELETS) and before.get(key) != after[key]:
            raise BadAnswer(f"{field} changes {key!r}, by which the kubelet knows its pods")


def _check_parent(field: str, parent: str) -> None:
    if ".." in parent.split("/") or "\0" in parent:
        raise BadAnswer(f"{field} is {parent!r}; give the path of a cgroup")
