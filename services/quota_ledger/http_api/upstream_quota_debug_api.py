"""The ledger's HTTP ports: upstream's debug API of quotas."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from services.quota_ledger.http_api import quota_summary
from services.quota_ledger.state.ledger_state import LedgerState
from shared.runtime.http_server import Ports, for_leaders, json_response, listening

QUOTAS = "/apis/v1/plugins/ElasticQuota/quotas"


@asynccontextmanager
async def serving(ports: Ports, state: Callable[[], LedgerState], leads: Callable[[], bool]) -> AsyncIterator[None]:
    """Serves while the context is open: from the replica's start to its end.

    Args:
        state: returns the State; called at each request.
        leads: returns whether this replica leads; another one responds with 503.

    Raises:
        NoCertificate: the secure port is on and no certificate is given.
    """
    async with listening(application(state, leads), ports):
        yield


def application(state: Callable[[], LedgerState], leads: Callable[[], bool]) -> web.Application:
    """Returns the application with its routes."""

    async def one(request: web.Request) -> web.Response:
        name, now = request.match_info["name"], state()
        found = quota_summary.quota(now.projection, name, version=now.positions.get("quota", 0), pods=_pods(request))
        if found is None:
            return json_response({"message": f"cannot find quota {name}"}, status=404)
        return json_response(found)

    async def all_of(request: web.Request) -> web.Response:
        now, tree = state(), request.query.get("tree", "")
        return json_response(
            quota_summary.quotas(now.projection, tree, version=now.positions.get("quota", 0), pods=_pods(request))
        )

    app = for_leaders(leads)
    app.add_routes([web.get(QUOTAS, all_of), web.get(QUOTAS + "/{name}", one)])
    return app


def _pods(request: web.Request) -> bool:
    return request.query.get("includePods") == "true"
