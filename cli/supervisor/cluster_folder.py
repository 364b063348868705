"""The folder of each cluster's system below `koord up --dir`: a log describes one cluster, so each has a log of its own."""

import os
import time
from pathlib import Path
from shlex import quote

from cli.supervisor.cluster_record import ClusterRecord, record_cluster, recorded_clusters
from cli.supervisor.system_folder import holds_system
from shared.errors import KoordError
from shared.kube.cluster_identity import describe_cluster

SIMULATED = "simulated"

_UID_CHARACTERS = 8
_TIMEOUT_S = 10.0


class UnknownCluster(KoordError):
    """The cluster of a kubeconfig cannot be identified."""

    def __init__(self, kubeconfig: Path, server: str, reason: str) -> None:
        super().__init__(
            f"the cluster of {kubeconfig} cannot be identified: {server}: {reason}. `koord up` keeps the data of each "
            "cluster in a folder named after it; see that this works: "
            f"`kubectl --kubeconfig {kubeconfig} get namespace kube-system`"
        )


class OtherCluster(KoordError):
    """The folder has the log of another cluster; nothing was started."""

    def __init__(self, folder: Path, recorded: str, requested: str, remedy: str) -> None:
        super().__init__(
            f"the log in {folder} describes {recorded}, not {requested}: nothing was started or written; {remedy}, or give "
            "another folder with --dir"
        )


async def folder_of(root: Path, kubeconfig: Path | None) -> Path:
    """Returns the folder of a cluster's system; `root` itself if it is the folder of a system already.

    The identity is read from the API server. If this does not respond, the folder is the one in which the cluster at
    that address was recorded earlier; the gateway compares the identity before it does anything.

    Args:
        kubeconfig: the cluster's; None for the simulated one.

    Raises:
        UnknownCluster: the API server does not respond, and no folder was recorded for its address.
        OtherCluster: `root` is the folder of another cluster's system.
        KoordError: the kubeconfig cannot be used.
    """
    if holds_system(root):
        await _require_its_cluster(root, kubeconfig)
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
    record_cluster(folder, ClusterRecord(uid, server, str(kubeconfig.absolute())))  # noqa: ASYNC240  reads no file
    return folder


async def _require_its_cluster(folder: Path, kubeconfig: Path | None) -> None:
    """Ends the start with another cluster than that of the folder, before anything is started. The gateway compares the
    identity that the log has.

    Raises:
        OtherCluster: the folder's record names another one.
        KoordError: the kubeconfig cannot be used.
    """
    record = recorded_clusters(folder).get(folder)
    if kubeconfig is None:
        if record is not None:
            raise OtherCluster(
                folder,
                describe_cluster(record.cluster),
                "the simulated one",
                f"start it with `{record.start} --dir {quote(str(folder))}`",
            )
        return
    if record is None and folder.name == SIMULATED:
        raise OtherCluster(folder, "the simulated cluster", f"that of {kubeconfig}", "leave out --kubeconfig")
    path = str(kubeconfig.absolute())  # noqa: ASYNC240  reads no file
    server, uid, _ = await _identify(path)
    if record is not None and uid and uid != record.cluster:
        raise OtherCluster(
            folder, describe_cluster(record.cluster), describe_cluster(uid), "give the kubeconfig of its cluster"
        )
    if record is not None and uid:
        record_cluster(folder, ClusterRecord(uid, server, path))


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
