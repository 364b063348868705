"""The folder of a local cluster: certificates, kubeconfigs, logs, etcd's data, and the ports it had."""

import fcntl
import json
import re
import shutil
import ssl
import tempfile
from pathlib import Path
from typing import IO

from cli.dev.pki import Authority, signing_key
from cli.processes.free_ports import free_port, is_free
from shared.errors import KoordError
from shared.file_replacement import replace_file

ADMIN = "admin"
MASTERS = ("system:masters",)  # may do everything, whatever RBAC says
SERVER_NAMES = ("127.0.0.1", "localhost", "kubernetes.default.svc")


class Folder:
    """A cluster's folder, held by one process at a time.

    Attributes:
        path: the folder; a temporary one, removed by `release`, unless the caller named it.
        pki: ca, server and admin certificates with their keys, and the key of service-account tokens.
        etcd: etcd's data.
    """

    def __init__(self, path: Path | None) -> None:
        self._temporary = path is None
        self.path = Path(tempfile.mkdtemp(prefix="koord-cluster-")) if path is None else path.absolute()
        self.pki = self.path / "pki"
        self.etcd = self.path / "etcd"
        self._ports: dict[str, int] = {}
        self._lock: IO[str] | None = None

    def claim(self) -> Authority:
        """Takes the folder, completes its certificates, and returns their authority.

        Raises:
            KoordError: a running cluster has it.
        """
        for part in ("", "kubeconfig", "log", "pki"):
            (self.path / part).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise KoordError(f"{self.path} belongs to a running cluster: stop it, or name another folder") from error
        for stale in (self.path / "kubeconfig").iterdir():
            stale.unlink()
        remembered = self.path / "ports.json"
        if remembered.exists():
            self._ports = {name: port for name, port in json.loads(remembered.read_text()).items() if is_free(port)}
        authority = Authority.load_or_create(self.pki)
        authority.issue("kube-apiserver", hosts=SERVER_NAMES).write(self.pki, "server")
        authority.issue(ADMIN, groups=MASTERS).write(self.pki, ADMIN)
        if not (self.pki / "service-accounts.key").exists():
            replace_file(self.pki / "service-accounts.key", signing_key(), mode=0o600)
        return authority

    def release(self) -> None:
        """Gives the folder back; removes a temporary one. Harmless when repeated."""
        if self._lock:
            self._lock.close()
            self._lock = None
        if self._temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    def port(self, server: str) -> int:
        """The port of a server of this cluster: the one it had before if that is free, else a new one."""
        if server not in self._ports:
            self._ports[server] = free_port()
            replace_file(self.path / "ports.json", json.dumps(self._ports).encode())
        return self._ports[server]

    def forget_ports(self) -> None:
        """Chooses every port anew."""
        self._ports.clear()

    def kubeconfig(self, user: str) -> Path:
        """Where the kubeconfig of `user` lies."""
        return self.path / "kubeconfig" / f"{re.sub(r'[^a-zA-Z0-9.-]', '-', user)}.yaml"

    def log(self, server: str) -> Path:
        """Where the output of a server goes."""
        return self.path / "log" / f"{server}.log"

    def admin_tls(self) -> ssl.SSLContext:
        """The administrator's side of a connection to any server of this cluster."""
        tls = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        tls.load_cert_chain(self.pki / f"{ADMIN}.crt", self.pki / f"{ADMIN}.key")
        return tls
