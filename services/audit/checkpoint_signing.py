"""The signing key of checkpoints: an Ed25519 key pair in two PEM files; only its owner may read the private one."""

import base64
import hashlib
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shared.errors import KoordError
from shared.file_replacement import replace_file
from shared.log.checkpoint import BadCheckpoint, Checkpoint

_RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw


class BadKey(KoordError):
    """A file holds no key that can be used."""


class Signer:
    """Signs statements.

    Attributes:
        public_key: its 32 bytes, base64.
        id: the first 16 hexadecimal digits of their SHA-256.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = base64_of(key.public_key())
        self.id = key_id(self.public_key)

    @classmethod
    def load(cls, file: Path) -> "Signer":
        """Loads the key of a PEM file.

        Raises:
            BadKey: the file is absent, open to others, or holds a key of another type.
        """
        try:
            status = file.stat()
            # A Secret's file belongs to root and is read through its group.
            if status.st_mode & (0o077 if status.st_uid == os.geteuid() else 0o037):
                raise BadKey(f"{file} is open to others; chmod 600 {file}")
            key = serialization.load_pem_private_key(file.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise BadKey(f"{file} holds no private key ({error}); koord audit keygen --out {file} makes one") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey(f"{file} holds another kind of key; koord audit keygen makes an Ed25519 key")
        return cls(key)

    def sign(self, statement: str) -> Checkpoint:
        """Signs a statement; the same text always has the same signature."""
        signature = base64.b64encode(self._key.sign(statement.encode())).decode()
        return Checkpoint(statement, self.public_key, signature)


def key_id(public_key: str) -> str:
    """Returns the id of a public key (base64)."""
    return hashlib.sha256(base64.b64decode(public_key)).hexdigest()[:16]


def base64_of(key: Ed25519PublicKey) -> str:
    """Returns the 32 bytes of a public key, base64."""
    return base64.b64encode(key.public_bytes(*_RAW)).decode()


def public_file(file: Path) -> Path:
    """Returns the file of the public key beside a private key: `audit.key` -> `audit.pub`."""
    return file.with_suffix(".pub")


def generate(file: Path) -> Signer:
    """Creates a key pair: `file` with mode 0600, and its public part beside it.

    Raises:
        FileExistsError: there is one already; its checkpoints could not be verified without it.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        raise FileExistsError(file)
    replace_file(public_file(file), public)
    replace_file(file, private, mode=0o600)
    return Signer(key)


def load_public(file: Path) -> str:
    """Loads the public key of a PEM file, base64.

    Raises:
        BadKey: there is none.
    """
    try:
        key = serialization.load_pem_public_key(file.read_bytes())
    except (OSError, ValueError) as error:
        raise BadKey(f"{file} holds no public key: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BadKey(f"{file} holds another kind of key than Ed25519")
    return base64_of(key)


def check(checkpoint: Checkpoint, trusted: str | None = None) -> None:
    """Verifies a signature and its key.

    Args:
        trusted: the public key (base64) of the expected signer; without it, the key in the checkpoint.

    Raises:
        BadCheckpoint: the signature is wrong, or of another key.
    """
    if trusted is not None and checkpoint.public_key != trusted:
        raise BadCheckpoint(f"the checkpoint is signed by {_named(checkpoint)}, not by the key that was given")
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(checkpoint.public_key, validate=True))
        key.verify(base64.b64decode(checkpoint.signature, validate=True), checkpoint.statement.encode())
    except (ValueError, InvalidSignature) as error:
        raise BadCheckpoint("the checkpoint's signature does not fit its statement: one of them was altered") from error


def _named(checkpoint: Checkpoint) -> str:
    try:
        return key_id(checkpoint.public_key)
    except ValueError:
        return "an unreadable key"
