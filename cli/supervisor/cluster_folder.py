"""The folder of each cluster's system below `koord up --dir`: a log describes one cluster, so each has a log of its own."""

import os
import time
from pathlib import Path

import msgspec

from cli.credentials.secrets_file import write_private
from cli.supervisor.system_folder import holds_system
from shared.errors import KoordError

SIMULATED = "simulated"

_RECORD = "cluster.json"
_UID_CHARACTERS = 8
_TIMEOUT_S = 10.0


class ClusterRecord(msgspec.Struct, frozen=True):
    """The cluster that a folder belongs to.

    Attributes:
        cluster: UID of its namespace kube-system.
        server: address of its API server when it was last reached.
    """

    cluster: str
    server: str


class UnknownCluster(KoordError):
    """The cluster of a kubeconfig cannot be identified."""

    def __init__(self, kubeconfig: Path, server: str, reason: str) -> None:
        super().__init__(
            f"the cluster of {kubeconfig} cannot be identified: {server}: {reason}. `koord up` keeps the data of each "
            "cluster in a folder named after it; see that this works: "
            f"`kubectl --kubeconfig {kubeconfig} get namespace kube-system`"
        )


async def folder_of(root: Path, kubeconfig: Path | None) -> Path:
    """Returns the folder of a cluster's system; `root` itself if it is the folder of a system already.

    The identity is read from the API server. If this does not respond, the folder is the one in which the cluster at
    that address was recorded earlier; the gateway compares the identity before it does anything.

    Args:
        kubeconfig: the cluster's; None for the simulated one.

    Raises:
        UnknownCluster: the API server does not respond, and no folder was recorded for its address.
        KoordError: the kubeconfig cannot be used.
    """
    if holds_system(root):
        if kubeconfig is not None:
            await _check(str(kubeconfig.absolute()))  # noqa: ASYNC240  reads no file
        return root
    if kubeconfig is None:
        return root / SIMULATED
    server, uid, reason = await _identify(str(kubeconfig.absolute()))  # noqa: ASYNC240  reads no file
    if not uid:
        for folder, record in recorded_clusters(root).items():
            if record.server == server:
                return folder
        raise UnknownCluster(kubeconfig, server, reason)
    folder = root / f"cluster-{uid[:_UID_CHARACTERS]}"
    write_private(folder / _RECORD, msgspec.json.encode(ClusterRecord(uid, server)).decode())
    return folder


async def refuse_managed_cluster(kubeconfig: str) -> None:
    """Ends the start of a system without a log, before its servers are started, where another one manages the cluster.

    Raises:
        ClusterTaken: it does, by its Lease.
    """
    from services.gateway.kube_api.client import KubeApi
    from services.gateway.other_system import refuse_managed
    from services.gateway.settings import GatewaySettings

    settings = GatewaySettings.load("gateway", os.environ)
    if settings.shadow:
        return
    async with KubeApi(kubeconfig, timeout_s=_TIMEOUT_S, read_only=True) as api:
        await refuse_managed(api, settings, time.time_ns)


async def _check(kubeconfig: str) -> None:
    """Reads a kubeconfig: the gateway, started with one that cannot be used, would end again and again."""
    from services.gateway.kube_api.client import KubeApi

    async with KubeApi(kubeconfig, read_only=True):
        pass


async def _identify(kubeconfig: str) -> tuple[str, str, str]:
    """Returns the API server's address, and the cluster's UID or the reason why it is not known."""
    from services.gateway.kube_api.api_errors import ApiError, Unanswered
    from services.gateway.kube_api.client import KubeApi

    async with KubeApi(kubeconfig, timeout_s=_TIMEOUT_S, read_only=True) as api:
        try:
            return api.server, await api.cluster_uid(), ""
        except Unanswered as error:
            return api.server, "", error.reason
        except ApiError as error:
            return api.server, "", str(error)


def recorded_clusters(root: Path) -> dict[Path, ClusterRecord]:
    """Returns the clusters of the systems directly below a folder, and of the folder itself, by the system's folder."""
    files = [path for path in (root / _RECORD, *sorted(root.glob(f"*/{_RECORD}"))) if path.exists()]
    return {file.parent: msgspec.json.decode(file.read_bytes(), type=ClusterRecord) for file in files}
