"""The login of a process at the bus: server, user and credentials, from the URL, the file of an NKEY seed and the file
of an authority.

A login named by the URL has inboxes of its own, `_INBOX.<user>.>`: responses to its requests arrive there, and no other
login may subscribe to them.
"""

import asyncio
import re
import socket
import ssl
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from shared.errors import KoordError

INBOX = "_INBOX"
PORT = 4222

DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
"""The server's message about a subject that a login may not use; in lower case, as the client passes it on."""


class BadLogin(KoordError):
    """The URL, the NKEY seed or the authority's certificate cannot be used."""


class Login(NamedTuple):
    """A login of the bus.

    Attributes:
        server: without the login, fit to be shown.
        user: names the inboxes; empty on a server without logins.
        password: empty with an NKEY.
        nkey: path of a file with an NKEY seed.
        ca: path of the certificate authority of the server, in PEM; with it, or with the scheme `tls`, the connection
            is TLS.
    """

    server: str
    user: str = ""
    password: str = ""
    nkey: str = ""
    ca: str = ""

    @classmethod
    def of(cls, url: str, *, nkey: str = "", ca: str = "") -> "Login":
        """Reads KOORD_NATS, `nats://user:password@host:port` or `tls://user@host:port`, and the files that belong to
        it.

        Raises:
            BadLogin: it is no such URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"nats", "tls"} or not parts.hostname:
            found = "a URL with a login" if "@" in url else repr(url)
            raise BadLogin(f"KOORD_NATS names no bus; give nats://host:4222, or tls://user@host:4222, not {found}")
        place = parts.netloc.rpartition("@")[2]
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(f"{parts.scheme}://{place}", user, password, nkey, ca)

    @property
    def inbox(self) -> str:
        """The first tokens of every inbox of this login."""
        return f"{INBOX}.{self.user}" if self.user else INBOX

    async def addresses(self) -> list[str]:
        """Resolves the server's name to addresses for the client.

        The client would resolve the name itself, and a look-up that takes longer than its timeout would fail without an
        error that anybody sees.

        Raises:
            OSError: the name has no address.
        """
        parts = urlsplit(self.server)
        found = await asyncio.get_running_loop().getaddrinfo(
            parts.hostname, parts.port or PORT, type=socket.SOCK_STREAM
        )
        hosts = dict.fromkeys(str(address[0]) for *_, address in found)
        return [f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port or PORT}" for host in hosts]

    def options(self) -> dict[str, Any]:
        """Returns the arguments of the client's `connect`, apart from the server.

        Raises:
            BadLogin: a file cannot be read.
        """
        options: dict[str, Any] = {"inbox_prefix": self.inbox}
        try:
            if self.nkey:
                options["nkeys_seed_str"] = Path(self.nkey).read_text().strip()
            elif self.user:
                options |= {"user": self.user, "password": self.password}
            if self.ca or self.server.startswith("tls:"):
                options["tls"] = ssl.create_default_context(cafile=self.ca or None)
                options["tls_hostname"] = urlsplit(self.server).hostname
        except (OSError, ssl.SSLError) as error:
            raise BadLogin(f"KOORD_NATS_NKEY or KOORD_NATS_CA names a file that cannot be used: {error}") from error
        return options


def url_of(server: str, user: str, password: str = "") -> str:
    """A server's URL with a login in it: the form of KOORD_NATS."""
    scheme, _, place = server.partition("://")
    secret = f":{quote(password, safe='')}" if password else ""
    return f"{scheme}://{quote(user, safe='')}{secret}@{place.rpartition('@')[2]}"
