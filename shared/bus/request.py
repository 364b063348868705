"""Questions on the bus: who asked what, where the answer goes, and what may come instead of one."""

import contextlib
import logging

import nats.errors
from nats.aio.msg import Msg

from shared.bus.login import INBOX
from shared.errors import KoordError

log = logging.getLogger(__name__)

FAILURES = (nats.errors.Error, OSError, TimeoutError)
"""What a connection that goes away ends in."""


class NoResponse(KoordError):
    """Nobody answered a question within its deadline."""

    def __init__(self, subject: str, deadline_s: float) -> None:
        super().__init__(
            f"no answer on {subject} within {deadline_s:g} s; see whether the service that answers it runs (koord up) "
            "and whether NATS is reachable (KOORD_NATS)"
        )


class NotPermitted(KoordError):
    """The login may not use a subject."""

    def __init__(self, user: str, what: str) -> None:
        super().__init__(
            f"NATS does not let {user or 'a client without a login'} {what}; a login may use what its service's declaration says, "
            "and `koord credentials check` says whether the server has the permissions of this release"
        )


class Request:
    """A message whose sender waits for an answer."""

    def __init__(self, message: Msg) -> None:
        self._message = message

    @property
    def subject(self) -> str:
        """What it was asked on."""
        return self._message.subject

    @property
    def data(self) -> bytes:
        """What was asked."""
        return self._message.data

    async def respond(self, data: bytes) -> None:
        """Answer, unless the connection has gone: then the sender asks again."""
        with contextlib.suppress(*FAILURES):
            await self._message.respond(data)


def replies_to_inbox(message: Msg) -> bool:
    """Whether the answer goes to an inbox. It is sent with the rights of who answers, so no asker may choose another subject.

    `_R_.` is the server's own: what it puts in an inbox's place when a question crosses accounts, and takes from no client.
    """
    if message.reply.startswith((f"{INBOX}.", "_R_.")):
        return True
    log.warning("a question wants its answer elsewhere", extra={"subject": message.subject, "reply": message.reply})
    return False
