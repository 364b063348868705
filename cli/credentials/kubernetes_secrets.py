"""The folder of an installation's credentials as Kubernetes Secrets: for each login its variables and its files, and
the servers' own.

A login's Secrets are mounted by its own Deployment (k8s/services) and nobody else's. People have none, and nodes
neither: a node's login lies on the node.
"""

from base64 import b64encode
from pathlib import Path
from typing import Any

from cli.credentials.credentials_folder import env_file, read_env
from cli.credentials.permissions import Login
from cli.credentials.secrets_file import OWNER
from shared.errors import KoordError

Object = dict[str, Any]

SERVERS = ("nats", "postgres")
"""Folders with a server's own files."""


class NotForContainers(KoordError):
    """Paths in the folder are those of this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} was made with --mount '': its logins point at files of this machine; "
            f"`koord credentials init {folder} --mount /etc/koord` makes it for containers"
        )


def secrets(folder: Path, logins: list[Login], namespace: str, mount: str) -> Object:
    """All Secrets as one List, for `kubectl apply -f -`.

    Args:
        mount: of the folder's book.

    Raises:
        NotForContainers: the folder is for this machine.
        KoordError: a file is missing.
    """
    if not mount:
        raise NotForContainers(folder)
    made = []
    for name in (*(login.name for login in logins if login.log is not None and login.log.service), OWNER):
        variables = {key: text.encode() for key, text in read_env(env_file(folder, name)).items()}
        made += [_secret(f"{name}-env", namespace, variables)]
        made += [_secret(f"{name}-files", namespace, _files(folder / "logins" / name))]
    variables = {key: text.encode() for key, text in read_env(env_file(folder, "postgres")).items()}
    made.append(_secret("postgres-env", namespace, variables))
    made += [_secret(f"{server}-files", namespace, _files(folder / server)) for server in SERVERS]
    return {"apiVersion": "v1", "kind": "List", "items": made}


def _files(folder: Path) -> dict[str, bytes]:
    """Path below the folder -> content; a key of a Secret has no slash, so `tls/server.crt` is `tls-server.crt`."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and "data" not in path.parts)
    return {str(path.relative_to(folder)).replace("/", "-"): path.read_bytes() for path in found}


def _secret(name: str, namespace: str, data: dict[str, bytes]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"koordstream-{name}",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "koordstream"},
        },
        "type": "Opaque",
        "data": {key: b64encode(text).decode() for key, text in data.items()},
    }
