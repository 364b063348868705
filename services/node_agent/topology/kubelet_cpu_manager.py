"""The kubelet's CPU manager: its settings from the configuration file, its assignments from the checkpoint.

Upstream reads the kubelet's `/configz`. This agent has no rights in the cluster, so it reads the files.
Source: spec/node-agent.md 7.2.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shared.errors import KoordError
from shared.kube.json_text import read_json
from shared.kube.quantity import NANO, BadQuantity, nanos

CHECKPOINT = "cpu_manager_state"
_FIELDS = {
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "reservedSystemCPUs",
    "kubeReserved",
    "systemReserved",
    "topologyManagerPolicy",
    "topologyManagerScope",
}


class BadKubeletFile(KoordError):
    """A file of the kubelet that cannot be read or is invalid."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(f"{file}: {why}; the last reported CPUs stay until it can be read")


class KubeletConfig(Struct, frozen=True, rename={
    "policy": "cpuManagerPolicy", "options": "cpuManagerPolicyOptions", "reserved_cpus": "reservedSystemCPUs",
    "kube_reserved": "kubeReserved", "system_reserved": "systemReserved",
    "topology_policy": "topologyManagerPolicy", "topology_scope": "topologyManagerScope",
}):  # fmt: skip
    """The part of a KubeletConfiguration about CPUs, with the kubelet's defaults."""

    policy: str = "none"
    options: dict[str, str] = {}
    reserved_cpus: str = ""
    kube_reserved: dict[str, str] = {}
    system_reserved: dict[str, str] = {}
    topology_policy: str = "none"
    topology_scope: str = "container"

    @property
    def reserved_count(self) -> int:
        """Whole CPUs reserved for the node by amount, rounded up."""
        try:
            amount = sum(nanos(each.get("cpu", "0")) for each in (self.kube_reserved, self.system_reserved))
        except BadQuantity:
            return 0
        return -(-amount // NANO)


class _Checkpoint(Struct):
    entries: dict[str, dict[str, str]] | None = None


def read_config(file: Path) -> KubeletConfig | None:
    """Reads the kubelet's configuration; None where there is no such file.

    Raises:
        BadKubeletFile: it is not a KubeletConfiguration.
    """
    import yaml  # imported here, as most cycles do not need it

    try:
        document: Any = yaml.safe_load(file.read_text())
        if not isinstance(document, Mapping):
            raise BadKubeletFile(file, "holds no KubeletConfiguration")
        known = {name: value for name, value in document.items() if name in _FIELDS and value is not None}
        return msgspec.convert(known, KubeletConfig, strict=False)
    except FileNotFoundError:
        return None
    except (OSError, yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise BadKubeletFile(file, str(error)) from error


def read_assignments(root: Path) -> Mapping[str, Mapping[str, str]]:
    """Returns uid of a pod -> container -> the CPUs that the kubelet assigned exclusively; none without a checkpoint.

    Raises:
        BadKubeletFile: the checkpoint is invalid.
    """
    file = root / CHECKPOINT
    try:
        return read_json(file.read_bytes().strip() or b"{}", _Checkpoint).entries or {}
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise BadKubeletFile(file, str(error)) from error
