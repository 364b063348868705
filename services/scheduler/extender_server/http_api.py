"""The scheduler's HTTP ports: the extender's verbs and the views of nodes and pods.

A replica that does not lead responds 503. Both ports serve the same; the insecure one is off unless it is configured.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from aiohttp import web

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.explain.why_pod_waits_now import pending_status
from services.scheduler.extender_server import debug_views
from services.scheduler.extender_server.answer_extender_verbs import filter_result, names_of, priorities
from services.scheduler.extender_server.api_types import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
)
from services.scheduler.extender_server.evaluate_pod_outside_cycle import BadQuery, EvaluationQuery
from services.scheduler.extender_server.extender_service import ExtenderService
from services.scheduler.settings import SchedulerSettings
from shared.errors import KoordError
from shared.kube.pod import Pod
from shared.runtime.http_server import for_leaders, json_response, listening
from shared.runtime.service import Runtime

MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""A request with 5,000 nodes as objects is some 30 MiB."""

TOP = 20
"""Nodes in a dump of scores without `?top=`."""

T = TypeVar("T")


@asynccontextmanager
async def serving(runtime: Runtime) -> AsyncIterator[ExtenderService]:
    """Serves from the start of the replica to its end.

    Raises:
        NoCertificate: the secure port is on and no certificate is given.
        NoAuthentication: a port beyond loopback would be open to everybody.
    """
    extender = ExtenderService(runtime)
    settings: SchedulerSettings = runtime.settings
    async with listening(_application(extender), settings.ports()):
        yield extender


class _Handlers:
    """Decodes requests and encodes responses; `for_leaders` rejects requests while there is no cache."""

    def __init__(self, extender: ExtenderService) -> None:
        self._service = extender

    @property
    def cache(self) -> CycleInputs:
        assert self._service.cache is not None, "requests are served only while leading"
        return self._service.cache

    async def filter(self, request: web.Request) -> web.Response:
        args = await _read(request, ExtenderArgs)
        try:
            return json_response(filter_result(args, await self._service.query_after_evictions(args)))
        except BadQuery as error:
            return json_response(ExtenderFilterResult(error=str(error)))

    async def prioritize(self, request: web.Request) -> web.Response:
        args = await _read(request, ExtenderArgs)
        return json_response(priorities(args, self._query(args.pod)))

    async def bind(self, request: web.Request) -> web.Response:
        return json_response(
            ExtenderBindingResult(error=await self._service.bind(await _read(request, ExtenderBindingArgs)))
        )

    async def preempt(self, request: web.Request) -> web.Response:
        args = await _read(request, ExtenderPreemptionArgs)
        try:
            left = await self._service.preempt(args.pod, args.candidates())
        except BadQuery as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        return json_response(ExtenderPreemptionResult(node_name_to_meta_victims=left))

    async def node(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        return _found(debug_views.node_info(self.cache, name), name)

    async def plugin_node(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        route = f"{request.match_info['plugin']}/{request.match_info['view']}"
        view = debug_views.plugin_views(self.cache).get(route)
        if view is None:
            raise web.HTTPNotFound(text=f"there is no view {route}\n")
        return _found(view(name), name)

    async def pod_status(self, request: web.Request) -> web.Response:
        pod = f"{request.match_info['namespace']}/{request.match_info['pod']}"
        found = pending_status(self.cache, pod, self._service.runtime.now_ns())
        return (
            json_response({"message": f"cannot find pod {pod}"}, status=404) if found is None else json_response(found)
        )

    async def scores(self, request: web.Request) -> web.Response:
        query = self._query(await _read(request, Pod))
        top = request.query.get("top", str(TOP))
        if not top.isdecimal():
            raise web.HTTPBadRequest(text=f"top is {top!r}; give a number\n")
        return web.Response(text=debug_views.scores(query, int(top)), content_type="text/markdown")

    async def filters(self, request: web.Request) -> web.Response:
        return json_response(debug_views.failures(self._query(await _read(request, Pod)), self.cache.table.rows))

    async def configz(self, _: web.Request) -> web.Response:
        return web.Response(text=self.cache.view.config_text, content_type="application/yaml")

    async def services(self, _: web.Request) -> web.Response:
        plugins = [f"/apis/v1/plugins/{route}/:nodeName" for route in debug_views.plugin_views(self.cache)]
        own = [
            path.replace("{node}", ":nodeName").replace("{", ":").replace("}", "")
            for path in _GETS
            if "{plugin}" not in path
        ]
        return json_response({"GET": sorted([*own, *plugins]), "POST": sorted(_POSTS)})

    def _query(self, pod: Pod) -> EvaluationQuery:
        try:
            return self._service.query(pod)
        except BadQuery as error:
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
    "/apis/v1/pods/{namespace}/{pod}": "pod_status",
    "/configz": "configz",
}


def _application(extender: ExtenderService) -> web.Application:
    handlers = _Handlers(extender)
    app = for_leaders(lambda: extender.cache is not None, largest=MAX_REQUEST_BYTES)
    app.add_routes([web.get(path, getattr(handlers, name)) for path, name in _GETS.items()])
    app.add_routes([web.post(path, getattr(handlers, name)) for path, name in _POSTS.items()])
    return app


class BadExtenderRequest(KoordError):
    """The body of a request is no message of the extender protocol."""


def decode_args(data: bytes, kind: type[T]) -> T:
    """Decodes the body of a request.

    Raises:
        BadExtenderRequest: it is no JSON of the type.
    """
    try:
        args = msgspec.json.decode(data, type=kind, strict=False)
        if isinstance(args, ExtenderArgs):
            names_of(args)  # the nodes stay encoded: each must have a name
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadExtenderRequest(str(error)) from error
    return args


async def _read(request: web.Request, kind: type[T]) -> T:
    try:
        return decode_args(await request.read(), kind)
    except BadExtenderRequest as error:
        raise web.HTTPBadRequest(text=f"{request.path}: {error}\n") from error


def _found(view: debug_views.Json | None, name: str) -> web.Response:
    return json_response({"message": f"cannot find node {name}"}, status=404) if view is None else json_response(view)
