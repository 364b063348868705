"""The scheduler's own HTTP ports: the extender's verbs and the services engine's views.

A replica that does not lead answers 503. Both ports serve the same; the insecure one is off unless it is asked for.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from aiohttp import web

from services.scheduler.index import Index
from services.scheduler.serving import views
from services.scheduler.serving.desk import Desk
from services.scheduler.serving.extender import filtered, preemptable, prioritized
from services.scheduler.serving.opinion import BadQuestion, Opinion
from services.scheduler.serving.wire import BindAnswer, BindAsk, FilterAnswer, FilterAsk, PreemptAnswer, PreemptAsk
from services.scheduler.settings import SchedulerSettings
from shared.errors import KoordError
from shared.kube.pod import Pod
from shared.service import Runtime

LARGEST_QUESTION = 64 * 1024 * 1024
"""A question with 5,000 whole nodes is some 30 MiB."""

TOP = 20
"""Nodes in a dump of scores, unless the caller says how many."""

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NoCertificate(KoordError):
    """The secure port was asked for without what it needs."""


@asynccontextmanager
async def serving(runtime: Runtime) -> AsyncIterator[Desk]:
    """Serve from the replica's start to its end.

    Raises:
        NoCertificate: the secure port is on and no certificate is given.
    """
    desk = Desk(runtime)
    settings: SchedulerSettings = runtime.settings
    if not settings.listen and not settings.insecure_listen:
        yield desk
        return
    runner = web.AppRunner(_application(desk), access_log=None, handle_signals=False)
    await runner.setup()
    try:
        if settings.insecure_listen:
            await _site(runner, settings.insecure_listen, None).start()
        if settings.listen:
            await _site(runner, settings.listen, _context(settings)).start()
        yield desk
    finally:
        await runner.cleanup()


def _site(runner: web.AppRunner, address: str, context: ssl.SSLContext | None) -> web.TCPSite:
    host, _, port = address.rpartition(":")
    return web.TCPSite(runner, host or None, int(port), ssl_context=context)


def _context(settings: SchedulerSettings) -> ssl.SSLContext:
    if not settings.tls_cert or not settings.tls_key:
        raise NoCertificate(
            "KOORD_SCHEDULER_LISTEN is a port with TLS; give KOORD_SCHEDULER_TLS_CERT and KOORD_SCHEDULER_TLS_KEY, or use "
            "KOORD_SCHEDULER_INSECURE_LISTEN"
        )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        raise NoCertificate(f"{settings.tls_cert} and {settings.tls_key} cannot be used: {error}") from error
    return context


class _Handlers:
    """Requests in, answers out; `_leading` has seen to it that there is an index."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def index(self) -> Index:
        assert self._desk.index is not None, "asked only while leading"
        return self._desk.index

    async def filter(self, request: web.Request) -> web.Response:
        ask = await _read(request, FilterAsk)
        try:
            return _json(filtered(ask, self._desk.opinion(ask.pod)))
        except BadQuestion as error:
            return _json(FilterAnswer(error=str(error)))

    async def prioritize(self, request: web.Request) -> web.Response:
        ask = await _read(request, FilterAsk)
        return _json(prioritized(ask, self._opinion(ask.pod)))

    async def bind(self, request: web.Request) -> web.Response:
        return _json(BindAnswer(error=await self._desk.bind(await _read(request, BindAsk))))

    async def preempt(self, request: web.Request) -> web.Response:
        ask = await _read(request, PreemptAsk)
        opinion = self._opinion(ask.pod)
        left = await self._desk.preempt(ask.pod, preemptable(ask.candidates(), opinion))
        return _json(PreemptAnswer(node_name_to_meta_victims=left))

    async def node(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        return _found(views.node_info(self.index, name), name)

    async def plugin_node(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        route = f"{request.match_info['plugin']}/{request.match_info['view']}"
        view = views.plugin_views(self.index).get(route)
        if view is None:
            raise web.HTTPNotFound(text=f"there is no view {route}\n")
        return _found(view(name), name)

    async def scores(self, request: web.Request) -> web.Response:
        opinion = self._opinion(await _read(request, Pod))
        top = request.query.get("top", str(TOP))
        if not top.isdecimal():
            raise web.HTTPBadRequest(text=f"top is {top!r}; give a number\n")
        return web.Response(text=views.scores(opinion, int(top)), content_type="text/markdown")

    async def filters(self, request: web.Request) -> web.Response:
        return _json(views.failures(self._opinion(await _read(request, Pod)), self.index.table.rows))

    async def configz(self, _: web.Request) -> web.Response:
        return web.Response(text=self.index.view.config_text, content_type="application/yaml")

    async def services(self, _: web.Request) -> web.Response:
        plugins = [f"/apis/v1/plugins/{route}/:nodeName" for route in views.plugin_views(self.index)]
        own = [path.replace("{node}", ":nodeName") for path in _GETS if "{plugin}" not in path]
        return _json({"GET": sorted([*own, *plugins]), "POST": sorted(_POSTS)})

    def _opinion(self, pod: Pod) -> Opinion:
        try:
            return self._desk.opinion(pod)
        except BadQuestion as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error


_POSTS = {
    "/extender/filter": "filter",
    "/extender/prioritize": "prioritize",
    "/extender/bind": "bind",
    "/extender/preempt": "preempt",
    "/debug/scores": "scores",
    "/debug/filters": "filters",
}
_GETS = {
    "/apis/v1/__services__": "services",
    "/apis/v1/nodes/{node}": "node",
    "/apis/v1/plugins/{plugin}/{view}/{node}": "plugin_node",
    "/configz": "configz",
}


def _application(desk: Desk) -> web.Application:
    @web.middleware
    async def leading(request: web.Request, handler: Handler) -> web.StreamResponse:
        if desk.index is None and request.path != "/healthz":
            return _json({"message": "the instance is not leader"}, status=503)
        return await handler(request)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    handlers = _Handlers(desk)
    app = web.Application(middlewares=[leading], client_max_size=LARGEST_QUESTION)
    app.add_routes([web.get("/healthz", healthz)])
    app.add_routes([web.get(path, getattr(handlers, name)) for path, name in _GETS.items()])
    app.add_routes([web.post(path, getattr(handlers, name)) for path, name in _POSTS.items()])
    return app


async def _read(request: web.Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.read(), type=kind, strict=False)
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"{request.path}: {error}\n") from error


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _found(told: views.Json | None, name: str) -> web.Response:
    return _json({"message": f"cannot find node {name}"}, status=404) if told is None else _json(told)
