"""HTTP servers of a service besides its probes: one with TLS, one without; both serve the same.

A replica that does not lead responds with 503 there, as upstream's do.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
from aiohttp import web

from shared.errors import KoordError
from shared.runtime.http_access import Access, Handler, NoAuthentication, admitted_only


class NoCertificate(KoordError):
    """The secure port is set without a usable certificate and key."""


class Ports(NamedTuple):
    """Addresses to listen on.

    Attributes:
        prefix: of the settings' names, for errors: `KOORD_SCHEDULER_`.
        secure, insecure: `host:port`; empty: none.
        certificate, key: files of the secure port, PEM.
        access: callers that are admitted.
    """

    prefix: str
    secure: str
    insecure: str
    certificate: str
    key: str
    access: Access = Access(allow_anonymous=True)

    def addresses(self) -> tuple[str, ...]:
        """Returns those that are set."""
        return tuple(filter(None, (self.insecure, self.secure)))


@asynccontextmanager
async def listening(application: web.Application, ports: Ports) -> AsyncIterator[None]:
    """Serves on these ports meanwhile.

    Raises:
        NoCertificate: the secure port is on and no certificate is given, or it cannot be used.
        NoAuthentication: a port beyond loopback would be open to everybody.
    """
    if not ports.addresses():
        yield
        return
    ports.access.check(ports.prefix, ports.addresses())
    application.middlewares.insert(0, admitted_only(ports.access))
    context = _context(ports) if ports.secure else None
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        for address, secret in ((ports.insecure, None), (ports.secure, context)):
            if address:
                host, _, port = address.rpartition(":")
                await web.TCPSite(runner, host or None, int(port), ssl_context=secret).start()
        yield
    finally:
        await runner.cleanup()


def for_leaders(leads: Callable[[], bool], *, largest: int = 1024**2) -> web.Application:
    """Returns an application that responds with 503 while the replica does not lead, except on `/healthz`.

    Args:
        largest: bytes of a request body.
    """

    @web.middleware
    async def leading(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not leads() and request.path != "/healthz":
            return json_response({"message": "the instance is not leader"}, status=503)
        return await handler(request)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    application = web.Application(middlewares=[leading], client_max_size=largest)
    application.add_routes([web.get("/healthz", healthz)])
    return application


def json_response(value: object, status: int = 200) -> web.Response:
    """Returns a response with a JSON body."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _context(ports: Ports) -> ssl.SSLContext:
    if not ports.certificate or not ports.key:
        raise NoCertificate(
            f"{ports.prefix}LISTEN is a port with TLS; give {ports.prefix}TLS_CERT and {ports.prefix}TLS_KEY, or use "
            f"{ports.prefix}INSECURE_LISTEN"
        )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(ports.certificate, ports.key)
    except OSError as error:
        raise NoCertificate(f"{ports.certificate} and {ports.key} cannot be used: {error}") from error
    try:
        ports.access.use_authority(context)
    except OSError as error:
        raise NoAuthentication(f"{ports.prefix}CLIENT_CA is {ports.access.client_ca}: {error}") from error
    return context
