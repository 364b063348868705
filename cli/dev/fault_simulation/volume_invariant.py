"""Invariant: a volume belongs to one claim at a time, and a pod is bound where the volumes of its claims are."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from cli.dev.fault_simulation.memory_api import ApiServer, Body
from cli.dev.fault_simulation.memory_log import Row
from cli.dev.fault_simulation.volume_controller import claim_of
from cli.dev.fault_simulation.volumes import claims_of, node_of
from shared.events.cluster import ObjectObserved
from shared.events.intents import FieldsDesired
from shared.events.scheduling import PodPlaced
from shared.kube.resource_names import CLAIMS, VOLUMES

MOST_WRITES = 2
"""A write without an answer may be repeated, and so may one whose outcome a crash kept from the log."""

_DESIRED, _PLACED, _OBJECT = (kind.type_name() for kind in (FieldsDesired, PodPlaced, ObjectObserved))


class _Fields(msgspec.Struct):
    resource: str = ""
    name: str = ""
    patch: dict[str, Any] = {}
    uid: str = ""
    pod_uid: str = ""
    seen: dict[str, int] | None = None


class VolumeInvariant:
    """The claims for which volumes are chosen, by the log and by the API server."""

    def __init__(self, api: ApiServer, report: Callable[[str], None]) -> None:
        self._api = api
        self._report = report
        self._chosen: dict[str, Body] = {}  # volume -> claimRef of its newest choice in the log
        self._observed: dict[str, list[tuple[int, str]]] = {}  # claim -> seq of `cluster`, uid
        self._placed: dict[str, dict[str, str]] = {}  # uid of a pod -> its claims, as its cycle had read them
        self._times: Counter[tuple[str, str]] = Counter()  # volume, uid of a claim -> writes beyond the choices

    def appended(self, context: str, rows: list[Row]) -> None:
        """Checks that a volume is chosen for another claim only once the first one needs it no longer."""
        if context == "cluster":
            self._observe(rows)
        if context != "scheduling":
            return
        read = 0
        for row in rows:
            desired = msgspec.json.decode(row.data, type=_Fields)
            read = (desired.seen or {}).get("cluster", read)
            if row.type == _PLACED:
                self._note_claims(desired.pod_uid, read)
            if row.type != _DESIRED:
                continue
            claimed = desired.patch.get("spec", {}).get("claimRef") if desired.resource == VOLUMES else None
            if not claimed:
                continue
            self._times[desired.name, claimed["uid"]] -= 1
            for name, other in self._chosen.items():
                if name != desired.name and other["uid"] == claimed["uid"] and self._is_of(name, claimed):
                    self._report(
                        f"{context}/{row.seq} chooses volume {desired.name} for {claimed['name']}, beside {name}"
                    )
            before = self._chosen.get(desired.name)
            if before is not None and before["uid"] != claimed["uid"] and self._needs(before, desired.name):
                self._report(
                    f"{context}/{row.seq} chooses volume {desired.name} for {claimed['name']}, and it was chosen for "
                    f"{before['name']}, which has no other"
                )
            self._chosen[desired.name] = claimed

    def _observe(self, rows: list[Row]) -> None:
        for row in rows:
            if row.type == _OBJECT:
                fields = msgspec.json.decode(row.data, type=_Fields)
                if fields.resource == CLAIMS:
                    self._observed.setdefault(fields.name, []).append((row.seq, fields.uid))

    def _note_claims(self, uid: str, read: int) -> None:
        pods = self._api.objects["pods"].values()
        pod = next((each for each in pods if each["metadata"]["uid"] == uid), None)
        if pod is not None:
            self._placed[uid] = {
                key: next((found for seq, found in reversed(self._observed.get(key, ())) if seq <= read), "")
                for key in claims_of(pod)
            }

    def changed(self, name: str, before: Body | None, after: Body | None) -> None:
        """Checks that a volume is not taken from its claim, nor given to one again and again that it was freed from."""
        claimed, claims = (each["spec"].get("claimRef") if each else None for each in (before, after))
        if claimed and claims and claimed["uid"] != claims["uid"]:
            claim = self._api.objects[CLAIMS].get(f"{claimed['namespace']}/{claimed['name']}")
            if claim is not None and claim["metadata"]["uid"] == claimed["uid"]:
                self._report(f"volume {name} of {claimed['name']} is given to {claims['name']}")

        if claims and (not claimed or claimed["uid"] != claims["uid"]):
            self._times[name, claims["uid"]] += 1
            if self._times[name, claims["uid"]] > MOST_WRITES:
                self._report(f"volume {name} is given to {claims['name']} again and again")

    def check_binding(self, pod: Body, node: str) -> None:
        """Checks a pod that is bound: its claims have their volumes, and its node reaches them."""
        for key in claims_of(pod):
            claim = self._api.objects[CLAIMS].get(key)
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                continue  # no service prevents that
            if self._placed.get(pod["metadata"]["uid"], {}).get(key) not in (None, claim["metadata"]["uid"]):
                continue  # nor that a claim comes again while its pod is bound
            volume = self._api.objects[VOLUMES].get(claim["spec"].get("volumeName", ""))
            if volume is None or claim_of(volume) != key:
                self._report(f"{pod['metadata']['name']} is bound, and {key} has no volume")
            elif node_of(volume) != node:
                name = volume["metadata"]["name"]
                self._report(f"{pod['metadata']['name']} is bound to {node}, which does not reach {name} of {key}")

    def _is_of(self, name: str, claimed: Body) -> bool:
        """Reports whether a volume that was chosen for a claim has it, or no claim yet."""
        volume = self._api.objects[VOLUMES].get(name)
        return volume is not None and volume["spec"].get("claimRef", claimed)["uid"] == claimed["uid"]

    def _needs(self, claimed: Body, volume: str) -> bool:
        """Reports whether a claim is there that has the volume, or none."""
        claim = self._api.objects[CLAIMS].get(f"{claimed['namespace']}/{claimed['name']}")
        if claim is None or claim["metadata"]["uid"] != claimed["uid"]:
            return False
        return claim["spec"].get("volumeName") in (None, "", volume)
