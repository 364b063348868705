"""Events of the `audit` context: signed checkpoints of all logs; a copy kept elsewhere proves what the logs contained."""

from typing import ClassVar

from shared.events.base import Event


class CheckpointSigned(Event, frozen=True, tag="koord.audit.CheckpointSigned.v1"):
    """The heads of all logs were signed with Ed25519. Copies are kept outside the database too: in a file, a stream, a
    ConfigMap.

    Attributes:
        signer: the first 16 hexadecimal digits of the SHA-256 of the public key.
        statement: the signed text, in lines: title, source, instant, and `context seq digest` of every log.
        public_key: the 32 bytes of the Ed25519 public key, base64.
        signature: the 64 bytes over the UTF-8 of `statement`, base64.
    """

    KEY: ClassVar[str] = "signer"

    signer: str
    statement: str
    public_key: str
    signature: str
