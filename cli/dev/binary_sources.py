"""Where the programs of a cluster and of its nodes come from: Go modules that pin a version of each, and what is built
from them.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from shared.errors import KoordError

_TESTS = Path(__file__).parents[2] / "tests"


def cache_root() -> Path:
    """Returns the folder of all that is built or fetched once: ~/.cache/koordstream."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "koordstream"


class BadModule(KoordError):
    """A go.mod does not require what is to be built from it."""


class Source(NamedTuple):
    """A Go module of tool dependencies with a committed go.sum.

    Attributes:
        folder: of its go.mod.
        pins: word in the name of the cache's folder -> the required module with that version.
        packages: program -> the package that it is built from.
        own: the folder of packages of ours; their content is part of the cache's name.
    """

    folder: Path
    pins: Mapping[str, str]
    packages: Mapping[str, str]
    own: str = ""

    def versions(self) -> dict[str, str] | None:
        """Word -> the pinned version, with its leading v; None outside a checkout, where there is nothing to build
        from.

        Raises:
            BadModule: a pin is missing.
        """
        go_mod = self.folder / "go.mod"
        if not go_mod.is_file():
            return None
        text = go_mod.read_text()
        found = {}
        for word, module in self.pins.items():
            match = re.search(rf"^\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
            if match is None:
                raise BadModule(f"{go_mod} does not require {module}: restore it")
            found[word] = match[1]
        return found

    def cache_folder(self) -> Path | None:
        """Where its programs lie once they are built: ~/.cache/koordstream/kube-V-etcd-V. None outside a checkout."""
        pinned = self.versions()
        if pinned is None:
            return None
        parts = [f"{word}-{version}" for word, version in pinned.items()]
        if self.own:
            parts.append(f"{self.own}-{_digest(self.folder / self.own)}")
        return cache_root() / "-".join(parts)

    def stamps(self) -> str:
        """Linker flags that write versions into programs; without them they say that they are templates."""
        pinned = self.versions() or {}
        stamps = {}
        if kube := pinned.get("kube"):
            major, minor, _ = kube.removeprefix("v").split(".", 2)
            base = "k8s.io/component-base/version"
            stamps = {f"{base}.gitVersion": kube, f"{base}.gitMajor": major, f"{base}.gitMinor": minor}
        if containerd := pinned.get("containerd"):
            stamps = {"github.com/containerd/containerd/v2/version.Version": containerd}
        return " ".join(["-s -w", *(f"-X {name}={text}" for name, text in stamps.items())])


CLUSTER = Source(
    _TESTS / "cluster" / "tools",
    {"kube": "k8s.io/kubernetes", "etcd": "go.etcd.io/etcd/server/v3"},
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    },
)
NODE = Source(
    _TESTS / "node" / "tools",
    {
        "containerd": "github.com/containerd/containerd/v2",
        "cni": "github.com/containernetworking/plugins",
        "runc": "github.com/opencontainers/runc",
    },
    {
        "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
        "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
        "loopback": "github.com/containernetworking/plugins/plugins/main/loopback",
        "runc": "github.com/opencontainers/runc",
    },
)
WORKLOAD = Source(_TESTS / "node" / "tools", {}, {"workload": "./workload"}, own="workload")
GUEST = Source(_TESTS / "node" / "tools", {}, {"guestinit": "./guestinit"}, own="guestinit")

SOURCES = {name: source for source in (CLUSTER, NODE, WORKLOAD, GUEST) for name in source.packages}
"""Program -> where it comes from."""


def _digest(folder: Path) -> str:
    found = hashlib.sha256()
    for file in sorted(folder.glob("*.go")):
        found.update(file.read_bytes())
    return found.hexdigest()[:12]
