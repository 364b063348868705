"""The system that manages a cluster, as its Lease shows it to one that has no log yet, before anything is started."""

from collections.abc import Callable

from services.gateway.cluster_lease import holder_of, lease_path
from services.gateway.kube_api.api_errors import ApiError
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.raw_object_requests import get_object
from services.gateway.needed_rbac_rules import LEASE_NAME
from services.gateway.settings import GatewaySettings
from shared.kube.cluster_identity import ClusterTaken
from shared.kube.instants import SECOND, BadTime, instant_ns


async def refuse_managed(api: KubeApi, settings: GatewaySettings, now_ns: Callable[[], int]) -> None:
    """Ends the start of a system for a cluster that another one manages.

    A Lease that was not renewed for as long as it lasts, or whose time is that far ahead, proves nothing by this
    machine's clock, and neither does one that cannot be read: the gateway then waits for a renewal, or an expiry.

    Raises:
        ClusterTaken: another system has renewed the Lease.
    """
    try:
        stored = await get_object(api, lease_path(settings.webhook_namespace), f"get leases {LEASE_NAME}")
    except ApiError:
        return
    if stored is None or not (holder := holder_of(stored)):
        return
    spec = stored["spec"]
    lasts_s = float(spec.get("leaseDurationSeconds") or settings.lease_s)
    try:
        age_ns = now_ns() - instant_ns(str(spec.get("renewTime", "")))
    except BadTime:
        return
    if abs(age_ns) < lasts_s * SECOND:
        log, _, replica = holder.partition("/")
        raise ClusterTaken(api.server, log, replica, lasts_s)
