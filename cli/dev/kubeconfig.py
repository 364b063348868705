"""Kubeconfig files: one cluster, one user, everything inside, so that a file can be handed to any program."""

from base64 import b64encode
from pathlib import Path

import yaml

from cli.dev.pki import Pair
from shared.file_replacement import replace_file


def write_kubeconfig(path: Path, *, url: str, ca: bytes, user: str, credentials: Pair | str) -> Path:
    """Writes a kubeconfig that only its owner may read; returns its path.

    Args:
        path: the file.
        url: of the API server.
        ca: the authority that issued its certificate, PEM.
        user: a name for people; what counts is in the credentials.
        credentials: a client certificate, or a bearer token.
    """
    if isinstance(credentials, str):
        login = {"token": credentials}
    else:
        login = {
            "client-certificate-data": b64encode(credentials.certificate).decode(),
            "client-key-data": b64encode(credentials.key).decode(),
        }
    cluster = {"server": url, "certificate-authority-data": b64encode(ca).decode()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "koordstream-dev", "cluster": cluster}],
        "users": [{"name": user, "user": login}],
        "contexts": [{"name": "default", "context": {"cluster": "koordstream-dev", "user": user}}],
        "current-context": "default",
    }
    replace_file(path, yaml.safe_dump(document, sort_keys=False).encode(), mode=0o600)
    return path
