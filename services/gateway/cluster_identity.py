"""Comparison of the cluster that the API server serves with the one that the log describes, before anything else; then
the claim of the cluster, where this system writes to it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TypeVar

from services.gateway.cluster_lease import ClusterLease, Identity, log_id_of
from services.gateway.kube_api.api_errors import ApiError, Busy
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from services.gateway.watch.unread_resources import Outages
from shared.events import Draft
from shared.events.cluster import ClusterIdentified
from shared.kube.cluster_identity import ClusterTaken, first_fact
from shared.kube.short_lists import CLUSTER_IDENTITY
from shared.runtime.service import Runtime
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

Result = TypeVar("Result")


async def confirm_cluster(runtime: Runtime, api: KubeApi, outages: Outages) -> bool:
    """Records the cluster in a new log, and compares it with that of the log; returns False if a stop is requested.

    Raises:
        WrongCluster: the log describes another one.
    """
    cluster = await _unless_stopped(runtime, _read_cluster(api, runtime.settings, outages))
    if cluster is None:
        return False
    first = first_fact(runtime.state.cluster, cluster, f"the one at {api.server}")
    if first is not None or not runtime.state.log:
        now_ns = runtime.now_ns()
        event = ClusterIdentified(cluster=cluster, log=log_id_of(cluster, runtime.replica, now_ns))
        await runtime.append([Draft(event)], now_ns=now_ns)
        log.info("the log now describes this cluster", extra={"cluster": cluster, "server": api.server})
    return True


async def claim_cluster(
    runtime: Runtime, api: KubeApi, outages: Outages, append_later: Callable[[Draft], None]
) -> ClusterLease | None:
    """Takes the Lease of the cluster; returns None if a stop is requested.

    Args:
        append_later: records a system that is refused while this one holds the Lease.

    Raises:
        ClusterTaken: another live system has it; that is recorded.
    """
    own, refusals = Identity(runtime.state.log, runtime.replica), list[Draft]()
    held = False

    def record(refusal: Draft) -> None:
        append_later(refusal) if held else refusals.append(refusal)

    lease = ClusterLease(api, runtime.settings, own, outages, runtime.now_ns, record)
    try:
        held = await _unless_stopped(runtime, lease.claim()) is True
    except ClusterTaken:
        await runtime.append(refusals, now_ns=runtime.now_ns())
        raise
    for refusal in refusals:
        append_later(refusal)
    return lease if held else None


async def _unless_stopped(runtime: Runtime, work: Coroutine[None, None, Result]) -> Result | None:
    """Returns the result of a coroutine; None if a stop is requested first."""
    working = asyncio.create_task(work)
    stop = asyncio.create_task(runtime.draining.wait())
    try:
        await asyncio.wait({working, stop}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancel_and_wait(working, stop)


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
