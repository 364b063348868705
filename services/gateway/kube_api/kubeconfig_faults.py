"""The field of a kubeconfig that cannot be used, where TLS and the client library only say `[SSL] PEM lib`.

Looked for after a failure alone: what counts is whether the file works.
"""

import binascii
import os
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from shared.yaml_fault import yaml_fault

_BAD_PEM = (ValueError, TypeError, UnsupportedAlgorithm)


def kubeconfig_fault(path: str) -> str:
    """Returns what is wrong with the fields that the current context uses; empty where no fault is seen."""
    try:
        found = yaml.safe_load(Path(path).read_text())
    except yaml.YAMLError as error:
        return f"it is not YAML: {yaml_fault(error)}"
    except UnicodeDecodeError:
        return "it is no text"
    except OSError as error:
        return "" if os.pathsep in path else f"it cannot be read ({error.strerror})"
    if not isinstance(found, dict):
        return "it is no kubeconfig"
    return next(_faults(found, Path(path).parent), "")


def _faults(found: dict[str, Any], folder: Path) -> Iterator[str]:
    if (kind := found.get("kind")) and kind != "Config":
        yield f"it is no kubeconfig but a Kubernetes object of kind {kind}"
        return
    current = found.get("current-context", "")
    contexts = _named(found, "contexts", "context")
    if current not in contexts:
        there = ", ".join(map(str, contexts)) or "none"
        named = f"current-context is {current!r}" if current else "no current-context is set"
        yield f"{named}, and its contexts are: {there}"
        return
    cluster_name, user_name = str(contexts[current].get("cluster")), str(contexts[current].get("user"))
    clusters, users = _named(found, "clusters", "cluster"), _named(found, "users", "user")
    if cluster_name not in clusters:
        yield f"context {current!r} names cluster {cluster_name!r}, which it does not have"
    if user_name not in users:
        yield f"context {current!r} names user {user_name!r}, which it does not have"
    yield from _field_faults(
        clusters.get(cluster_name, {}), "certificate-authority", f"cluster {cluster_name!r}", folder, _certificate
    )
    user, of = users.get(user_name, {}), f"user {user_name!r}"
    yield from _field_faults(user, "client-certificate", of, folder, _certificate)
    yield from _field_faults(user, "client-key", of, folder, _key)
    certificate, key = (_content(user, name, folder)[1] for name in ("client-certificate", "client-key"))
    if isinstance(certificate, bytes) and isinstance(key, bytes) and _certificate(certificate) != _key(key):
        yield f"client-key of {of} is not the key of its client-certificate"
    elif isinstance(certificate, bytes) and key is None:
        yield f"{of} has a client-certificate and no client-key"


def _field_faults(
    holder: dict[str, Any], name: str, of: str, folder: Path, read: Callable[[bytes], bytes]
) -> Iterator[str]:
    field, content = _content(holder, name, folder)
    if isinstance(content, str):
        yield f"{field} of {of} {content}"
    elif content is not None:
        try:
            read(content)
        except _BAD_PEM:
            what = "private key" if name == "client-key" else "certificate"
            yield f"{field} of {of} holds no {what} in PEM, which begins with -----BEGIN"


def _content(holder: dict[str, Any], name: str, folder: Path) -> tuple[str, bytes | str | None]:
    """Returns the field in use, and its bytes, or what is wrong with it as text; None without the field."""
    if data := holder.get(f"{name}-data"):
        try:
            return f"{name}-data", b64decode(str(data), validate=True)
        except binascii.Error:
            return f"{name}-data", "is not base64"
    if file := holder.get(name):
        try:
            return name, (folder / str(file)).read_bytes()
        except OSError as error:
            return name, f"names {file}, which cannot be read ({error.strerror})"
    return name, None


def _certificate(pem: bytes) -> bytes:
    """Returns the public key of a certificate."""
    public = x509.load_pem_x509_certificate(pem).public_key()
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key(pem: bytes) -> bytes:
    """Returns the public key of a private key."""
    public = load_pem_private_key(pem, None).public_key()
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _named(found: dict[str, Any], entries: str, what: str) -> dict[str, dict[str, Any]]:
    listed = found.get(entries) or []
    return {each["name"]: each.get(what) or {} for each in listed if isinstance(each, dict) and "name" in each}
