"""Callers that an HTTP port of a service admits: those with a client certificate or a token.

A port without either is open to every process that reaches it. That is accepted on loopback; elsewhere the service does
not start until an operator allows it.
"""

import hmac
import ssl
from base64 import b64decode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Middleware

from shared.errors import KoordError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK = ("127.", "::1", "localhost")


class NoAuthentication(KoordError):
    """A port is open to other machines, or the files that restrict it cannot be used."""


class Access(NamedTuple):
    """Credentials that a caller must show: one of the two suffices.

    Attributes:
        client_ca: file with the authority of client certificates, PEM; empty: none.
        client_names: common names of admitted certificates; empty: every certificate of the authority.
        token_file: file with one token a line; read at each request, so that tokens can be replaced; empty: none.
        allow_anonymous: admits callers without either, also from other machines.
    """

    client_ca: str = ""
    client_names: tuple[str, ...] = ()
    token_file: str = ""
    allow_anonymous: bool = False

    @property
    def is_open(self) -> bool:
        """True where every caller is admitted."""
        return self.allow_anonymous or not (self.client_ca or self.token_file)

    def check(self, prefix: str, addresses: tuple[str, ...]) -> None:
        """Checks the settings at the start of a service.

        Args:
            prefix: of the settings' names, for errors: `KOORD_SCHEDULER_`.
            addresses: `host:port` of all ports.

        Raises:
            NoAuthentication: a port beyond loopback would be open, or the file of tokens has none.
        """
        beyond = [address for address in addresses if not _is_loopback(address)]
        if self.is_open and not self.allow_anonymous and beyond:
            raise NoAuthentication(
                f"{beyond[0]} would be open to every machine that reaches it; give {prefix}CLIENT_CA or"
                f" {prefix}TOKEN_FILE, listen on 127.0.0.1, or set {prefix}ALLOW_ANONYMOUS=true"
            )
        if self.token_file and not self.is_open and not self._tokens():
            raise NoAuthentication(f"{prefix}TOKEN_FILE is {self.token_file}, which has no token or cannot be read")

    def use_authority(self, context: ssl.SSLContext) -> None:
        """Has a TLS port verify the certificates that its clients show.

        Raises:
            OSError: the file cannot be read, or has no certificate.
        """
        if self.client_ca:
            context.load_verify_locations(self.client_ca)
            # A client without a certificate may have a token.
            context.verify_mode = ssl.CERT_OPTIONAL

    def admits(self, request: web.Request) -> bool:
        """Returns True for a caller with a verified certificate or a known token."""
        return self.is_open or self._has_certificate(request) or self._has_token(request)

    def _has_certificate(self, request: web.Request) -> bool:
        if not self.client_ca or request.transport is None:
            return False
        certificate = request.transport.get_extra_info("peercert")
        if not certificate:
            return False
        subject = {name: value for part in certificate.get("subject", ()) for name, value in part}
        return not self.client_names or subject.get("commonName") in self.client_names

    def _has_token(self, request: web.Request) -> bool:
        offered = _offered_token(request.headers.get("Authorization", ""))
        return offered is not None and any(hmac.compare_digest(offered, token) for token in self._tokens())

    def _tokens(self) -> list[bytes]:
        if not self.token_file:
            return []
        try:
            lines = Path(self.token_file).read_bytes().splitlines()
        except OSError:
            return []  # nobody is admitted by a token while the file is missing
        return [token for line in lines if (token := line.strip())]


def admitted_only(access: Access) -> Middleware:
    """Returns a middleware that responds with 401 to callers that are not admitted, except on `/healthz`."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != "/healthz" and not access.admits(request):
            raise web.HTTPUnauthorized(
                text="show a client certificate or a token (Authorization: Bearer ...)\n",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return await handler(request)

    return check


def _offered_token(authorization: str) -> bytes | None:
    """Returns the token of a header. kube-scheduler has no setting for a token, but sends the user and password of its
    `urlPrefix` as basic authentication: then the password is the token.
    """
    scheme, _, rest = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            return rest.strip().encode()
        case "basic":
            try:
                return b64decode(rest, validate=True).partition(b":")[2]
            except ValueError:
                return None
        case _:
            return None


def _is_loopback(address: str) -> bool:
    return address.rpartition(":")[0].strip("[]").startswith(LOOPBACK)
