"""Finds out within seconds that the API server hangs: its watches stay open then, and in a quiet cluster the gateway
would notice it only at its next request.
"""

import asyncio

from services.gateway.kube_api.client import KubeApi
from services.gateway.watch.unread_resources import ANSWER_S, Outages, request_failure
from shared.kube.short_lists import CLUSTER_IDENTITY

INTERVAL_S = 1.0


async def probe(api: KubeApi, outages: Outages, quiet_s: float) -> None:
    """Sends a small request whenever the API server has sent nothing for `quiet_s`, until cancelled; one without an answer
    is an outage until the server sends something.
    """
    while True:
        await asyncio.sleep(INTERVAL_S)
        reason = await request_failure(api, ANSWER_S) if api.silent_s >= quiet_s else ""
        # An error is an answer, too.
        outages.failing(CLUSTER_IDENTITY, reason if api.silent_s >= quiet_s else "")
