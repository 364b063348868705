"""Requests on the bus: the message, its response, and the errors that replace one."""

import contextlib
import logging

import nats.errors
from nats.aio.msg import Msg

from shared.bus.login import INBOX
from shared.errors import KoordError

log = logging.getLogger(__name__)

FAILURES = (nats.errors.Error, OSError, TimeoutError)
"""Exceptions of a connection that is lost."""


class NoResponse(KoordError):
    """No response to a request within its deadline."""

    def __init__(self, subject: str, deadline_s: float) -> None:
        super().__init__(
            f"no response on {subject} within {deadline_s:g} s; see whether the service that responds to it runs "
            "(koord up) and whether NATS is reachable (KOORD_NATS)"
        )


class NotPermitted(KoordError):
    """The login may not use a subject."""

    def __init__(self, user: str, what: str) -> None:
        super().__init__(
            f"NATS does not let {user or 'a client without a login'} {what}; use a login whose manifest has that subject, such "
            "as the operator's; `koord credentials check` reports whether the server has the permissions of this release"
        )


class Request:
    """A message whose sender waits for a response."""

    def __init__(self, message: Msg) -> None:
        self._message = message

    @property
    def subject(self) -> str:
        """The subject on which the request arrived."""
        return self._message.subject

    @property
    def data(self) -> bytes:
        """The payload of the request."""
        return self._message.data

    async def respond(self, data: bytes) -> None:
        """Responds, unless the connection is lost: then the sender repeats the request."""
        with contextlib.suppress(*FAILURES):
            await self._message.respond(data)


def replies_to_inbox(message: Msg) -> bool:
    """Reports whether the reply subject is an inbox. The response is sent with the rights of this login, so the sender
    may not choose any other subject.

    `_R_.` is the server's own: it replaces an inbox when a request crosses accounts, and no client may send it.
    """
    if message.reply.startswith((f"{INBOX}.", "_R_.")):
        return True
    log.warning(
        "a request names a reply subject that is no inbox", extra={"subject": message.subject, "reply": message.reply}
    )
    return False
