"""The command lines of the control plane. Everything listens on 127.0.0.1; other flags keep their defaults."""

from pathlib import Path


def etcd(program: Path, *, data: Path, port: int, peer_port: int) -> list[str]:
    """One member that never syncs: a crash of the machine loses data, a kill of the process does not."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        str(program),
        f"--data-dir={data}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--force-new-cluster",  # one member always; its peer port may differ from the last start's
    ]


def apiserver(program: Path, *, pki: Path, port: int, etcd_port: int) -> list[str]:
    """Client certificates and service-account tokens for authentication, RBAC for the rest."""
    return [
        str(program),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        *_serving(pki),
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-accounts.key'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",  # a loopback address is refused as an endpoint
        "--shutdown-watch-termination-grace-period=2s",  # SIGTERM ends open watches; else it waits a minute for them
    ]


def component(program: Path, *, pki: Path, port: int, kubeconfig: Path) -> list[str]:
    """kube-scheduler or kube-controller-manager, the only replica."""
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        *_serving(pki),
    ]


def controllers(pki: Path) -> list[str]:
    """Flags of kube-controller-manager besides `component`: all controllers but those that wait for kubelets."""
    return [
        "--controllers=*,-node-lifecycle-controller,-node-ipam-controller",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--service-account-private-key-file={pki / 'service-accounts.key'}",
        "--use-service-account-credentials=true",
    ]


def _serving(pki: Path) -> list[str]:
    return [f"--tls-cert-file={pki / 'server.crt'}", f"--tls-private-key-file={pki / 'server.key'}"]
