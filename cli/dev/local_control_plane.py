"""A Kubernetes control plane on loopback: a real etcd and kube-apiserver, and on request the controllers and a
scheduler.

    with Cluster() as cluster:
        cluster.apply("pod.yaml")
        cluster.kubeconfig()                                        # the administrator's
        cluster.service_account_kubeconfig("koord", "gateway")      # only what RBAC grants

No node runs: pods are objects only, which stay as they are unless fake_kubelet.py follows them. etcd listens without
authentication and nothing is synced to disk, so this is for development on a machine of one's own.
"""

import atexit
import os
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from cli.dev import control_plane_flags, namespace_setup
from cli.dev.binaries import provide
from cli.dev.cluster_folder import ADMIN, MASTERS, Folder
from cli.dev.kube_client import Api
from cli.dev.kubeconfig import write_kubeconfig
from cli.dev.pki import Authority
from cli.processes.child_process import Process, ProgramFailed
from shared.errors import KoordError

CRDS = Path(__file__).parents[2] / "k8s" / "crds"
READY_WITHIN_S = 60.0
PORT_TRIES = 3


class KubectlFailed(KoordError):
    """kubectl ended with an error; the text is its output."""


class Cluster:
    """One control plane. The parts are `Process`es, so a test can stop, kill or pause any of them and start it again.

    Attributes:
        etcd, apiserver: present once started.
        scheduler, controllers: present once `start_scheduler` / `start_controllers` was called.
        api: calls as the administrator.
    """

    etcd: Process
    apiserver: Process
    scheduler: Process | None = None
    controllers: Process | None = None
    api: Api
    _authority: Authority

    def __init__(self, folder: Path | None = None, apiserver_flags: Sequence[str] = ()) -> None:
        """Prepares one.

        Args:
            folder: keep everything here; in a temporary folder otherwise.
            apiserver_flags: more flags of kube-apiserver, which win over ours.
        """
        self._folder = Folder(folder)
        self._apiserver_flags = tuple(apiserver_flags)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts etcd and the API server; returns when pods can be created. A folder used before goes on with its data.

        Raises:
            ProgramsMissing, BuildFailed: see `programs.provide`.
            ProgramFailed: a program did not come up.
            KoordError: another process runs a cluster in the same folder.
        """
        atexit.register(self.stop)
        try:
            programs = provide("etcd", "kube-apiserver")
            self._authority = self._folder.claim()
            for attempt in range(1, PORT_TRIES + 1):
                try:
                    self._start_once(programs)
                    break
                except ProgramFailed as error:  # a port may be taken between the look and the start
                    if attempt == PORT_TRIES or "address already in use" not in str(error):
                        raise
                    self._stop_programs()
                    self._folder.forget_ports()
            self.create_namespace("default")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends every program, then removes the folder if it is a temporary one. Harmless when repeated."""
        atexit.unregister(self.stop)
        self._stop_programs()
        self._folder.release()

    @property
    def folder(self) -> Path:
        """Certificates, kubeconfigs, logs and etcd's data."""
        return self._folder.path

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self._folder.port('kube-apiserver')}"

    @property
    def ca_file(self) -> Path:
        """The authority that issued every certificate of this cluster, PEM."""
        return self._folder.pki / "ca.crt"

    def wait_ready(self, timeout_s: float = READY_WITHIN_S) -> None:
        """Waits until the API server is ready (after a part of it was started again).

        Raises:
            ProgramFailed: it ended or took longer.
        """
        self.apiserver.wait_until(self.api.ready, timeout_s)

    def restart_apiserver(self, *, kill: bool = False) -> None:
        """Ends the API server (with SIGKILL if `kill`), starts it on the same port, and waits until it is ready."""
        if kill:
            self.apiserver.kill()
        else:
            self.apiserver.stop()
        self.apiserver.start()
        self.wait_ready()

    def restart_etcd(self, *, kill: bool = False) -> None:
        """Ends etcd (with SIGKILL if `kill`), starts it with its data, and waits until the API server has found it."""
        if kill:
            self.etcd.kill()
        else:
            self.etcd.stop()
        self.etcd.start()
        self.etcd.wait_until(self._etcd_ready, READY_WITHIN_S)
        self.wait_ready()

    def start_scheduler(self, *more: str) -> Process:
        """Starts kube-scheduler as its own RBAC user; `more` are flags that win over ours (`--config=FILE`, ...)."""
        self.scheduler = self._start_component("kube-scheduler", more)
        return self.scheduler

    def start_controllers(self, *more: str) -> Process:
        """Starts kube-controller-manager with all controllers but those that need a kubelet's heartbeats."""
        own = control_plane_flags.controllers(self._folder.pki)
        self.controllers = self._start_component("kube-controller-manager", [*own, *more])
        return self.controllers

    def kubeconfig(self, user: str = ADMIN, groups: tuple[str, ...] = ()) -> Path:
        """Writes a kubeconfig with a client certificate for `user`; returns its path.

        The default user is the administrator. Any other has what RBAC grants to its name and to `groups`.
        """
        path = self._folder.kubeconfig("-".join((user, *groups)))
        if not path.exists():
            pair = self._authority.issue(user, groups=MASTERS if user == ADMIN else groups)
            write_kubeconfig(path, url=self.url, ca=self._authority.pem, user=user, credentials=pair)
        return path

    def service_account_token(self, namespace: str, name: str, ttl_s: int = 86_400) -> str:
        """Asks the API server for a token of a service account, which is created if it does not exist."""
        with self.api.session() as session:
            namespace_setup.create_service_account(session, namespace, name)
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
            answer = session.call("POST", path, {"spec": {"expirationSeconds": ttl_s}})
        return str(answer["status"]["token"])

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Writes a kubeconfig with a fresh token of the service account; returns its path."""
        token = self.service_account_token(namespace, name)
        path = self._folder.kubeconfig(f"system:serviceaccount:{namespace}:{name}")
        return write_kubeconfig(path, url=self.url, ca=self._authority.pem, user=name, credentials=token)

    def create_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Creates a namespace in which pods are admitted; one that exists gets what it lacks."""
        namespace_setup.create_namespace(self.api, name, labels)

    def delete_namespace(self, name: str) -> None:
        """Deletes a namespace with all that is in it, at once; no controller is needed."""
        namespace_setup.delete_namespace(self.api, name)

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Runs kubectl, as the administrator unless `kubeconfig` is given; returns its output.

        Raises:
            KubectlFailed: with kubectl's output.
        """
        program = provide("kubectl")["kubectl"]
        command = [program, f"--kubeconfig={kubeconfig or self.kubeconfig()}", *arguments]
        environment = os.environ | {"KUBECACHEDIR": str(self.folder / "kubectl")}
        done = subprocess.run(command, input=stdin, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, path: str | Path, *more: str) -> str:
        """`kubectl apply` of a file, a folder, or a folder with a kustomization; returns what kubectl printed."""
        how = "-k" if (Path(path) / "kustomization.yaml").exists() else "-f"
        return self.kubectl("apply", how, path, *more)

    def apply_crds(self, path: Path = CRDS) -> None:
        """Applies the custom resource definitions and waits until they are served; a missing folder is none."""
        if path.is_dir():
            self.apply(path)  # as README does it: after a server-side apply its command warns of each definition
            self.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")

    def _start_once(self, programs: dict[str, Path]) -> None:
        home = self._folder
        etcd, peer, port = home.port("etcd"), home.port("etcd-peer"), home.port("kube-apiserver")
        self.api = Api("127.0.0.1", port, home.admin_tls())
        command = control_plane_flags.etcd(programs["etcd"], data=home.etcd, port=etcd, peer_port=peer)
        self.etcd = Process("etcd", command, home.log("etcd"))
        command = control_plane_flags.apiserver(programs["kube-apiserver"], pki=home.pki, port=port, etcd_port=etcd)
        self.apiserver = Process("kube-apiserver", [*command, *self._apiserver_flags], home.log("kube-apiserver"))
        self.etcd.start()
        self.etcd.wait_until(self._etcd_ready, READY_WITHIN_S)
        self.apiserver.start()
        self.wait_ready()

    def _etcd_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._folder.port('etcd')}/readyz", timeout=2):
                return True
        except OSError:
            return False

    def _start_component(self, name: str, more: Sequence[str]) -> Process:
        program, port = provide(name)[name], self._folder.port(name)
        kubeconfig = self.kubeconfig(f"system:{name}")
        command = control_plane_flags.component(program, pki=self._folder.pki, port=port, kubeconfig=kubeconfig)
        process = Process(name, [*command, *more], self._folder.log(name))
        process.start()
        health = Api("127.0.0.1", port, self.api.tls)
        process.wait_until(lambda: health.ready("/healthz"), READY_WITHIN_S)
        return process

    def _stop_programs(self) -> None:
        for name in ("scheduler", "controllers", "apiserver", "etcd"):  # each needs the ones after it
            process: Process | None = getattr(self, name, None)
            if process:
                process.stop()
