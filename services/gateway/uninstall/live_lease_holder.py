"""The system that holds the Lease of a cluster and renews it: it may run on another machine, from another folder.

A holder that was killed leaves the Lease as it was. Only a renewal distinguishes a live one, without any comparison of
clocks.
"""

import asyncio
from collections.abc import Callable

from services.gateway.cluster_lease import holder_of, lease_path
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.raw_object_requests import Raw, get_object
from services.gateway.needed_rbac_rules import LEASE_NAME
from services.gateway.settings import GatewaySettings

READS = 30
"""Reads of the Lease while it lasts; its holder renews it three times."""


async def lease_holder(api: KubeApi, settings: GatewaySettings) -> str:
    """Returns the log and the replica in the Lease; empty where nobody holds it.

    Raises:
        ApiError: the Lease cannot be read.
    """
    return holder_of(await _read(api, settings))


async def live_lease_holder(api: KubeApi, settings: GatewaySettings, waits: Callable[[str, float], None]) -> str:
    """Returns the log and the replica of the system that renews the Lease; empty where none has for as long as it lasts.

    Args:
        waits: gets the holder and the longest wait in seconds, before the wait.

    Raises:
        ApiError: the Lease cannot be read.
    """
    first = await _read(api, settings)
    if not holder_of(first):
        return ""
    lasts_s = float(first["spec"].get("leaseDurationSeconds") or settings.lease_s)
    waits(holder_of(first), lasts_s)
    for _ in range(READS):
        await asyncio.sleep(lasts_s / READS)
        stored = await _read(api, settings)
        if not holder_of(stored):
            return ""
        if stored["spec"] != first["spec"]:
            return holder_of(stored)
    return ""


async def _read(api: KubeApi, settings: GatewaySettings) -> Raw:
    path = lease_path(settings.webhook_namespace)
    return await get_object(api, path, f"get leases.coordination.k8s.io {LEASE_NAME}") or {}
