"""Containers as Docker's API has them, as pods and containers of the hook service, and back.

A kubelet keeps a pod's sandbox and its containers as containers of Docker: which one by labels, whose by the name, and
annotations as labels with a prefix. Functions of what was sent. Source: spec/node-agent.md 5.2, 5.6, 5.7.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from services.runtime_proxy.known_containers import container_of
from services.runtime_proxy.merge_rules import written_variables
from shared.runtime_hooks import messages

ANNOTATION = "annotation."
"""Prefix of the labels that are annotations."""
TYPE, SANDBOX = "io.kubernetes.docker.type", "podsandbox"
SANDBOX_ID = "io.kubernetes.sandbox.id"
SYSTEMD = "systemd"
"""The cgroup driver whose parents are slices, named without the slices above them."""
RUNTIME_HANDLER = "docker"
CPU_PERIOD_US = 100_000
"""Docker's period of a container with NanoCpus, the CPUs of `docker run --cpus` in billionths."""
_AGAIN = re.compile(r"[0-9a-f]{8}").fullmatch
_MAX_ATTEMPT = 2**32 - 1

Amount = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class HostConfig(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A container's resources and its cgroup's parent; an update has the resources."""

    cpu_period: Amount = 0
    cpu_quota: Amount = 0
    cpu_shares: Amount = 0
    nano_cpus: Amount = 0
    memory: Amount = 0
    memory_swap: Amount = 0
    oom_score_adj: Amount = 0
    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    cgroup_parent: str = ""


class ContainerConfig(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A container as it is created. Docker's clients send null for empty lists and objects."""

    labels: dict[str, str] | None = None
    env: list[str] | None = None
    host_config: HostConfig | None = None

    @property
    def host(self) -> HostConfig:
        """Its resources; Docker's defaults where it has none."""
        return self.host_config or HostConfig()

    def label(self, key: str) -> str:
        """Returns a label; empty without it."""
        return (self.labels or {}).get(key, "")

    @property
    def is_sandbox(self) -> bool:
        """True for the sandbox of a pod."""
        return self.label(TYPE) == SANDBOX


class KubernetesName(NamedTuple):
    """A container's name, `k8s_<container>_<pod>_<namespace>_<uid>_<attempt>`."""

    container: str
    pod: str
    namespace: str
    uid: str
    attempt: int


_RESOURCES = {
    "cpu_period": "CpuPeriod",
    "cpu_quota": "CpuQuota",
    "cpu_shares": "CpuShares",
    "memory_limit_in_bytes": "Memory",
    "memory_swap_limit_in_bytes": "MemorySwap",
    "cpuset_cpus": "CpusetCpus",
    "cpuset_mems": "CpusetMems",
}
"""Fields of the hook service, and Docker's for the same."""


def parse_name(name: str) -> KubernetesName | None:
    """Returns the parts of a container's name; None: it is not one of a kubelet.

    A kubelet whose name is taken by a container that Docker cannot remove adds eight hexadecimal digits to it.
    """
    parts = name.removeprefix("/").split("_")
    if len(parts) == 7 and _AGAIN(parts[6]):
        del parts[6]
    if len(parts) != 6:
        return None
    _, container, pod, namespace, uid, number = parts
    attempt = int(number) if number.isascii() and number.isdecimal() and len(number) <= 10 else 0
    return KubernetesName(container, pod, namespace, uid, attempt if attempt <= _MAX_ATTEMPT else 0)


def pod_subject(name: KubernetesName, config: ContainerConfig, driver: str) -> Any:
    """Returns the pod of a sandbox.

    Args:
        driver: Docker's cgroup driver.
    """
    labels, annotations = _split(config.labels or {})
    return messages.PodSandboxHookRequest(
        pod_meta={"name": name.pod, "uid": name.uid, "namespace": name.namespace, "attempt": name.attempt},
        runtime_handler=RUNTIME_HANDLER,
        labels=labels,
        annotations=annotations,
        cgroup_parent=full_cgroup_parent(driver, config.host.cgroup_parent),
        resources=resources_of(config.host),
    )


def container_subject(pod: Any, name: KubernetesName, config: ContainerConfig, driver: str) -> Any:
    """Returns a container of a pod."""
    subject = container_of(pod)
    if not subject.pod_cgroup_parent:
        subject.pod_cgroup_parent = full_cgroup_parent(driver, config.host.cgroup_parent)
    subject.container_meta.name, subject.container_meta.attempt = name.container, name.attempt
    subject.container_annotations.update(_split(config.labels or {})[1])
    subject.container_resources.CopyFrom(resources_of(config.host))
    subject.container_envs.update(pair for each in config.env or () if (pair := _variable(each)) is not None)
    return subject


def resources_of(host: HostConfig) -> Any:
    """Returns resources as hook servers get them. CPUs in billionths are a quota of Docker's period."""
    period, quota = host.cpu_period, host.cpu_quota
    if host.nano_cpus > 0:
        period, quota = CPU_PERIOD_US, host.nano_cpus * CPU_PERIOD_US // 10**9
    return messages.LinuxContainerResources(
        cpu_period=period,
        cpu_quota=quota,
        cpu_shares=host.cpu_shares,
        memory_limit_in_bytes=host.memory,
        memory_swap_limit_in_bytes=host.memory_swap,
        oom_score_adj=host.oom_score_adj,
        cpuset_cpus=host.cpuset_cpus,
        cpuset_mems=host.cpuset_mems,
    )


def write_resources(body: dict[str, Any], resources: Any) -> None:
    """Writes resources into an update, or into the HostConfig of a container. What is empty in both is left out."""
    for field, key in _RESOURCES.items():
        if (value := getattr(resources, field)) or key in body:
            body[key] = value
    if body.get("NanoCpus"):  # Docker refuses them beside a quota, which says the same
        del body["NanoCpus"]


def write_container(body: dict[str, Any], resources: Any, parent: str, driver: str) -> None:
    """Writes resources and the parent of its cgroup into a container that is created.

    Args:
        parent: a path; empty: the request's stays.
    """
    host = body["HostConfig"] = body.get("HostConfig") or {}
    write_resources(host, resources)
    if resources.oom_score_adj or "OomScoreAdj" in host:
        host["OomScoreAdj"] = resources.oom_score_adj
    if parent:
        host["CgroupParent"] = docker_cgroup_parent(driver, parent)


def written_env(before: Iterable[str], envs: Mapping[str, str]) -> list[str]:
    """Returns a container's variables. One without a value, which Docker takes off those of the image, stays."""
    named = [(pair[0] if (pair := _variable(each)) else None, each) for each in before]
    return written_variables(named, envs, lambda name, value: f"{name}={value}")


def full_cgroup_parent(driver: str, parent: str) -> str:
    """Returns the path of a cgroup that Docker names: `a-b.slice` is `/a.slice/a-b.slice` with systemd."""
    if driver != SYSTEMD or not parent or "/" in parent:
        return parent
    parts = parent.removesuffix(".slice").split("-")
    return "".join(f"/{'-'.join(parts[:end])}.slice" for end in range(1, len(parts) + 1))


def docker_cgroup_parent(driver: str, path: str) -> str:
    """Returns the name that Docker has for the path of a cgroup: with systemd its last slice."""
    return path.rstrip("/").rpartition("/")[2] if driver == SYSTEMD else path


def _variable(text: str) -> tuple[str, str] | None:
    name, equals, value = text.partition("=")
    return (name, value) if equals else None


def _split(labels: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns labels and annotations."""
    found = {key: value for key, value in labels.items() if not key.startswith(ANNOTATION)}
    return found, {key.removeprefix(ANNOTATION): labels[key] for key in labels if key not in found}
