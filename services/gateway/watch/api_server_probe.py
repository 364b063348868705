"""Finds out within seconds that the API server hangs: its watches stay open then, and in a quiet cluster the gateway
would notice it only at its next request.
"""

import asyncio

from services.gateway.kube_api.api_errors import ApiError
from services.gateway.kube_api.client import KubeApi
from services.gateway.watch.unread_resources import ANSWER_S, CLUSTER_IDENTITY, Outages

INTERVAL_S = 1.0


async def probe(api: KubeApi, outages: Outages, quiet_s: float) -> None:
    """Sends a small request whenever the API server has sent nothing for `quiet_s`, until cancelled; one without an answer
    is an outage until the server sends something.
    """
    while True:
        await asyncio.sleep(INTERVAL_S)
        reason = await _reason(api, quiet_s) if api.silent_s >= quiet_s else ""
        outages.failing(CLUSTER_IDENTITY, reason)


async def _reason(api: KubeApi, quiet_s: float) -> str:
    """Returns why the API server sends no answer; empty for any answer, an error too."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await api.cluster_uid()
    except TimeoutError:
        reason = f"no answer within {ANSWER_S:g} s"
    except ApiError as error:
        reason = str(error)
    else:
        return ""
    return reason if api.silent_s >= quiet_s else ""
