"""Comparison of the cluster that the API server serves with the one that the log describes, before anything else."""

import asyncio
import logging

from services.gateway.kube_api.api_errors import ApiError, Busy
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from services.gateway.watch.unread_resources import CLUSTER_IDENTITY, Outages
from shared.events import Draft
from shared.kube.cluster_identity import first_fact
from shared.runtime.service import Runtime
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)


async def confirm_cluster(runtime: Runtime, api: KubeApi, outages: Outages) -> bool:
    """Records the cluster in a new log, and compares it with that of the log; returns False if a stop is requested.

    Raises:
        WrongCluster: the log describes another one.
    """
    reading = asyncio.create_task(_read_cluster(api, runtime.settings, outages))
    stop = asyncio.create_task(runtime.draining.wait())
    try:
        await asyncio.wait({reading, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            return False
        event = first_fact(runtime.state.cluster, reading.result(), f"the one at {api.server}")
    finally:
        await cancel_and_wait(reading, stop)
    if event is not None:
        await runtime.append([Draft(event)], now_ns=runtime.now_ns())
        log.info("the log now describes this cluster", extra={"cluster": event.cluster, "server": api.server})
    return True


async def _read_cluster(api: KubeApi, settings: GatewaySettings, outages: Outages) -> str:
    pause_s = settings.backoff_s
    while True:
        try:
            cluster = await api.cluster_uid()
        except ApiError as error:
            if not outages.current():
                log.warning("the cluster is not identified yet", extra={"error": str(error)})
            outages.failing(CLUSTER_IDENTITY, str(error))
            outages.log_lasting(settings.list_alarm_s)
            requested_s = error.retry_after_s if isinstance(error, Busy) else 0
        else:
            outages.failing(CLUSTER_IDENTITY, "")
            return cluster
        await asyncio.sleep(max(pause_s, requested_s))
        pause_s = min(2 * pause_s, settings.backoff_max_s)
