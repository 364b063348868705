"""The scheduler's own HTTP ports: the extender's verbs and the services engine's views.

A replica that does not lead answers 503. Both ports serve the same; the insecure one is off unless it is asked for.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from aiohttp import web

from services.scheduler.cache.scheduling_cache import Index
from services.scheduler.extender import node_views
from services.scheduler.extender.api_types import (
    BindAnswer,
    BindAsk,
    FilterAnswer,
    FilterAsk,
    PreemptAnswer,
    PreemptAsk,
)
from services.scheduler.extender.evaluation_query import BadQuestion, Opinion
from services.scheduler.extender.extender_service import Desk
from services.scheduler.extender.verbs import filtered, prioritized
from services.scheduler.queue.pending_status import told
from services.scheduler.settings import SchedulerSettings
from shared.http_server import Ports, for_leaders, json_response, listening
from shared.kube.pod import Pod
from shared.service import Runtime

LARGEST_QUESTION = 64 * 1024 * 1024
"""A question with 5,000 whole nodes is some 30 MiB."""

TOP = 20
"""Nodes in a dump of scores, unless the caller says how many."""

T = TypeVar("T")


@asynccontextmanager
async def serving(runtime: Runtime) -> AsyncIterator[Desk]:
    """Serve from the replica's start to its end.

    Raises:
        NoCertificate: the secure port is on and no certificate is given.
    """
    desk = Desk(runtime)
    settings: SchedulerSettings = runtime.settings
    ports = Ports("KOORD_SCHEDULER_", settings.listen, settings.insecure_listen, settings.tls_cert, settings.tls_key)
    async with listening(_application(desk), ports):
        yield desk


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
            return json_response(filtered(ask, await self._desk.opinion_for(ask)))
        except BadQuestion as error:
            return json_response(FilterAnswer(error=str(error)))

    async def prioritize(self, request: web.Request) -> web.Response:
        ask = await _read(request, FilterAsk)
        return json_response(prioritized(ask, self._opinion(ask.pod)))

    async def bind(self, request: web.Request) -> web.Response:
        return json_response(BindAnswer(error=await self._desk.bind(await _read(request, BindAsk))))

    async def preempt(self, request: web.Request) -> web.Response:
        ask = await _read(request, PreemptAsk)
        try:
            left = await self._desk.preempt(ask.pod, ask.candidates())
        except BadQuestion as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        return json_response(PreemptAnswer(node_name_to_meta_victims=left))

    async def node(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        return _found(node_views.node_info(self.index, name), name)

    async def plugin_node(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        route = f"{request.match_info['plugin']}/{request.match_info['view']}"
        view = node_views.plugin_views(self.index).get(route)
        if view is None:
            raise web.HTTPNotFound(text=f"there is no view {route}\n")
        return _found(view(name), name)

    async def standing(self, request: web.Request) -> web.Response:
        pod = f"{request.match_info['namespace']}/{request.match_info['pod']}"
        found = told(self.index, pod, self._desk.runtime.now_ns())
        return (
            json_response({"message": f"cannot find pod {pod}"}, status=404) if found is None else json_response(found)
        )

    async def scores(self, request: web.Request) -> web.Response:
        opinion = self._opinion(await _read(request, Pod))
        top = request.query.get("top", str(TOP))
        if not top.isdecimal():
            raise web.HTTPBadRequest(text=f"top is {top!r}; give a number\n")
        return web.Response(text=node_views.scores(opinion, int(top)), content_type="text/markdown")

    async def filters(self, request: web.Request) -> web.Response:
        return json_response(node_views.failures(self._opinion(await _read(request, Pod)), self.index.table.rows))

    async def configz(self, _: web.Request) -> web.Response:
        return web.Response(text=self.index.view.config_text, content_type="application/yaml")

    async def services(self, _: web.Request) -> web.Response:
        plugins = [f"/apis/v1/plugins/{route}/:nodeName" for route in node_views.plugin_views(self.index)]
        own = [
            path.replace("{node}", ":nodeName").replace("{", ":").replace("}", "")
            for path in _GETS
            if "{plugin}" not in path
        ]
        return json_response({"GET": sorted([*own, *plugins]), "POST": sorted(_POSTS)})

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
    "/apis/v1/pods/{namespace}/{pod}": "standing",
    "/configz": "configz",
}


def _application(desk: Desk) -> web.Application:
    handlers = _Handlers(desk)
    app = for_leaders(lambda: desk.index is not None, largest=LARGEST_QUESTION)
    app.add_routes([web.get(path, getattr(handlers, name)) for path, name in _GETS.items()])
    app.add_routes([web.post(path, getattr(handlers, name)) for path, name in _POSTS.items()])
    return app


async def _read(request: web.Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.read(), type=kind, strict=False)
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"{request.path}: {error}\n") from error


def _found(told: node_views.Json | None, name: str) -> web.Response:
    return json_response({"message": f"cannot find node {name}"}, status=404) if told is None else json_response(told)
