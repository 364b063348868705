"""The Lease by which the system that writes to a cluster is known to others: its log, its replica, and that it lives.

Two systems that write to one cluster undo each other's work. A system with another log is refused while the holder
renews the Lease; the holder learns of it from a note in the Lease. A system in shadow mode writes nothing, no Lease
either, and may run beside any other.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from services.gateway.kube_api.api_errors import ApiError, Busy, Conflict, Forbidden, NotFound, Rejected
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.raw_object_requests import Raw, get_object, put_object
from services.gateway.needed_rbac_rules import LEASE_NAME
from services.gateway.settings import GatewaySettings
from services.gateway.watch.unread_resources import Outages
from shared.events import Draft
from shared.events.cluster import SecondSystemRefused
from shared.kube.cluster_identity import ClusterTaken

log = logging.getLogger(__name__)

REFUSED = "koordstream/refused"
"""Annotation with the identity of the newest system that was refused; the holder records and removes it."""

RENEWALS = 3
"""Renewals of the Lease while it lasts."""
NOTES = 3
"""Tries of a refused system to leave its note while the holder renews."""

LABELS = {"app.kubernetes.io/managed-by": "koordstream"}


class Identity(NamedTuple):
    """A system: the id of its log, and the replica that writes `cluster`."""

    log: str
    replica: str

    def __str__(self) -> str:
        """Formats it as `holderIdentity`."""
        return f"{self.log}/{self.replica}"


class ClusterLease:
    """The Lease of one term. `claim` comes first; `keep` renews what it has claimed."""

    def __init__(
        self,
        api: KubeApi,
        settings: GatewaySettings,
        own: Identity,
        outages: Outages,
        now_ns: Callable[[], int],
        append: Callable[[Draft], None],
    ) -> None:
        """Begins without the Lease.

        Args:
            own: this system.
            outages: shows why the Lease cannot be claimed.
            append: records that another system was refused.
        """
        self._api, self._own, self._outages, self._now_ns, self._append = api, own, outages, now_ns, append
        self._lasts_s = settings.lease_s
        self._pauses_s = settings.backoff_s, settings.backoff_max_s
        self.name = f"{settings.webhook_namespace}/{LEASE_NAME}"
        self._path = lease_path(settings.webhook_namespace)
        self._rule = f"leases.coordination.k8s.io {LEASE_NAME} in {settings.webhook_namespace}"
        self._renewed_s: float | None = None
        self._acquired = ""
        self._seen = ("", "")
        self._unchanged_since_s = 0.0
        self._unusable = ""

    def hold_writes(self, api: KubeApi) -> None:
        """Has a client send no write once another system can have taken the cluster over."""
        api.hold_writes(lambda: self.permits_effects, self._path.rpartition("/")[0])

    @property
    def permits_effects(self) -> bool:
        """Returns whether no other system can have taken the cluster over meanwhile, as far as this one can know."""
        return self._renewed_s is None or _now_s() - self._renewed_s < self._lasts_s

    async def claim(self) -> bool:
        """Takes the Lease, once no other system holds it; True also where the cluster has no place for it.

        Raises:
            ClusterTaken: another system renews it.
        """
        pause_s, longest_s = self._pauses_s
        while True:
            try:
                if await self._check():
                    self._outages.failing(self._outage, "")
                    return True
            except ApiError as error:
                self._outages.failing(self._outage, str(error))
                await asyncio.sleep(max(pause_s, error.retry_after_s if isinstance(error, Busy) else 0))
                pause_s = min(2 * pause_s, longest_s)
                continue
            await asyncio.sleep(min(1.0, self._lasts_s / 10))

    async def keep(self) -> None:
        """Renews the Lease until cancelled.

        Raises:
            ClusterTaken: another system has it.
        """
        while True:
            await asyncio.sleep(self._lasts_s / RENEWALS if not self._outages_now else 1.0)
            try:
                if await self._check():
                    self._outages.failing(self._outage, "")
            except ApiError as error:
                self._outages.failing(self._outage, str(error))

    async def release(self) -> None:
        """Ends the holding, so that another system need not wait; leaves it to expire where that fails."""
        if self._renewed_s is None:
            return
        try:
            stored = await get_object(self._api, self._path, f"get {self._rule}")
            if stored is not None and holder_of(stored) == str(self._own):
                await self._write(stored, holder="")
        except ApiError as error:
            log.warning("the Lease is not released", extra={"lease": self.name, "error": str(error)})

    @property
    def _outage(self) -> str:
        return f"the Lease {self.name}"

    @property
    def _outages_now(self) -> bool:
        return any(outage.resource == self._outage for outage in self._outages.current())

    async def _check(self) -> bool:
        """Claims or renews the Lease; returns False while that of another system may still be renewed."""
        try:
            stored = await get_object(self._api, self._path, f"get {self._rule}")
            if stored is not None and self._is_others(stored) and not await self._has_expired(stored):
                return False
            await self._write(stored, holder=str(self._own))
        except Conflict:
            return False
        except (Forbidden, NotFound, Rejected) as error:
            self._warn_unusable(error)
            return True
        if stored is not None:
            self._record_refused(stored)
        if self._unusable:
            log.info("the Lease is held", extra={"lease": self.name})
            self._unusable = ""
        return True

    def _is_others(self, stored: Raw) -> bool:
        """Returns whether another system holds the Lease. Of the replicas of one log, the lock of the log decides."""
        holder = holder_of(stored)
        if not holder or holder == str(self._own):
            return False
        if self._renewed_s is not None:
            raise ClusterTaken(self._api.server, *holder.partition("/")[::2], self._lasts_s)
        return log_of(stored) != self._own.log

    async def _has_expired(self, stored: Raw) -> bool:
        """Returns whether the holder has not renewed it for as long as it lasts, by this process's own clock.

        Raises:
            ClusterTaken: it was renewed since the last check.
        """
        holder, spec = holder_of(stored), stored["spec"]
        seen, before = (holder, str(spec.get("renewTime"))), self._seen
        self._seen = seen
        if before == ("", ""):
            self._unchanged_since_s = _now_s()
            lasts_s = float(spec.get("leaseDurationSeconds", self._lasts_s))
            what = f"held by {holder}, another system; it is taken over unless renewed within {lasts_s:g} s"
            log.warning("another system may manage this cluster", extra={"lease": self.name, "holder": holder})
            self._outages.failing(self._outage, what)
        elif seen != before:
            await self._leave_note()
            log_id, _, replica = holder.partition("/")
            self._append(Draft(self._refusal(log_id, replica, self._own.log, self._own.replica)))
            raise ClusterTaken(self._api.server, log_id, replica, self._lasts_s)
        return _now_s() - self._unchanged_since_s >= float(spec.get("leaseDurationSeconds", self._lasts_s))

    async def _leave_note(self) -> None:
        for _ in range(NOTES):
            try:
                stored = await get_object(self._api, self._path, f"get {self._rule}")
                if stored is None:
                    return
                stored["metadata"].setdefault("annotations", {})[REFUSED] = str(self._own)
                await put_object(self._api, self._path, stored, stored, self._rule)
            except Conflict:
                continue
            except ApiError as error:
                log.warning("the other system is not notified", extra={"lease": self.name, "error": str(error)})
            return

    def _record_refused(self, stored: Raw) -> None:
        """Records the system that the note of the Lease names; the write of the Lease has removed the note."""
        refused = (stored["metadata"].get("annotations") or {}).get(REFUSED, "")
        log_id, _, replica = refused.partition("/")
        if log_id and log_id != self._own.log:
            log.error("another system was refused, which would write to this cluster", extra={"refused": refused})
            self._append(Draft(self._refusal(self._own.log, self._own.replica, log_id, replica)))

    @staticmethod
    def _refusal(manager_log: str, manager: str, refused_log: str, refused: str) -> SecondSystemRefused:
        return SecondSystemRefused(manager_log=manager_log, manager=manager, refused_log=refused_log, refused=refused)

    async def _write(self, stored: Raw | None, holder: str) -> None:
        began_s, now = _now_s(), _micro_time(self._now_ns())
        self._acquired = self._acquired or now
        spec: dict[str, Any] = {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(self._lasts_s)),
            "acquireTime": self._acquired,
            "renewTime": now,
        }
        namespace, _, name = self.name.partition("/")
        body: Raw = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
            "spec": spec,
        }
        await put_object(self._api, self._path, body, stored, self._rule)
        self._renewed_s = began_s if holder else None

    def _warn_unusable(self, error: ApiError) -> None:
        """Logs each reason once: without the Lease a second system is not noticed, but this one works."""
        if str(error) != self._unusable:
            self._unusable = str(error)
            remedy = "kubectl apply -k k8s/base creates the namespace, k8s/rbac grants the rights"
            log.warning(
                "a second system that writes to this cluster would not be noticed",
                extra={"lease": self.name, "error": str(error), "remedy": remedy},
            )


def log_id_of(cluster: str, replica: str, now_ns: int) -> str:
    """Returns the id of a new log, which no other has: no other replica records the cluster at that instant."""
    return blake2b(f"{cluster} {replica} {now_ns}".encode(), digest_size=8).hexdigest()


def lease_path(namespace: str) -> str:
    """Returns the path of the Lease at the API server."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE_NAME}"


def holder_of(stored: Raw) -> str:
    """Returns the log and the replica of the system in a Lease, `log/replica`; empty where nobody holds it."""
    return str((stored.get("spec") or {}).get("holderIdentity") or "")


def log_of(stored: Raw) -> str:
    """Returns the log of the system in a Lease; empty where nobody holds it."""
    return holder_of(stored).partition("/")[0]


def _micro_time(now_ns: int) -> str:
    return datetime.fromtimestamp(now_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
