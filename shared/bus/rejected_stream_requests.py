"""Requests to JetStream that the server rejects as malformed: NATS reports each to its account, with its subject."""

import msgspec

from shared.rejected_messages import RejectionRecord

AUDITED = "$JS.EVENT.ADVISORY.API"
"""NATS publishes each request to JetStream with its response here, in the account that the request came from."""

_MALFORMED = 400
"""A request for what does not exist has another code, and is normal."""


class _Error(msgspec.Struct):
    code: int = 0
    description: str = ""


class _Response(msgspec.Struct):
    error: _Error | None = None


class _Client(msgspec.Struct):
    user: str = ""


class _Audited(msgspec.Struct):
    subject: str = ""
    response: str = ""
    client: _Client = msgspec.field(default_factory=_Client)


_decode_audited = msgspec.json.Decoder(_Audited).decode
_decode_response = msgspec.json.Decoder(_Response).decode


def record_rejected(data: bytes, record: RejectionRecord) -> None:
    """Records the request of an audit message of NATS if it was malformed; other messages change nothing."""
    try:
        audited = _decode_audited(data)
        response = _decode_response(audited.response.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    if audited.subject and response.error is not None and response.error.code == _MALFORMED:
        user = f"user {audited.client.user}: " if audited.client.user else ""
        record.add(audited.subject, f"{user}{response.error.description}")
