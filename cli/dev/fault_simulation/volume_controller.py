"""Kubernetes' volume controller, a provisioner and the people who free local volumes, as far as clients see them."""

import random
from collections.abc import Callable
from functools import partial

from cli.dev.fault_simulation.cluster_objects import Body
from cli.dev.fault_simulation.memory_api import ApiServer
from cli.dev.fault_simulation.volumes import MADE, bound_by_controller, claims_of, volume
from shared.kube.resource_names import CLAIMS, VOLUMES
from shared.kube.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE

SLOWEST_S = 0.5
FREED_AFTER_S = 1.0
REJECTS = 0.2
"""Share of the volumes that the provisioner does not provision on the node that was selected, while faults occur."""


class VolumeController:
    """Binds volumes and claims that name each other, provisions and frees volumes, and ends deleted claims."""

    def __init__(self, api: ApiServer, seed: int, is_calm: Callable[[], bool]) -> None:
        """Prepares the controller.

        Args:
            is_calm: reports whether faults have ended: the provisioner rejects no node then.
        """
        self._api = api
        self._random = random.Random(seed)  # noqa: S311
        self._is_calm = is_calm

    def changed(self, resource: str, key: str, before: Body | None, after: Body | None) -> None:
        """Notes a change of an object, which is acted on after a while."""
        if resource == VOLUMES and after is not None:
            self._later(self._sync_volume, key)
        elif resource == CLAIMS:
            if after is not None:
                self._later(self._sync_claim, key)
            for name in self._volumes_of(key):
                self._later(self._sync_volume, name)
        elif resource == "pods" and after is None and before is not None:
            for claim in claims_of(before):
                self._later(self._sync_claim, claim)

    def _later(self, what: Callable[[str], None], key: str) -> None:
        self._api.later(0.02 + self._random.random() * SLOWEST_S, partial(what, key))

    def _volumes_of(self, claim: str) -> list[str]:
        return [name for name, each in self._api.objects[VOLUMES].items() if claim_of(each) == claim]

    def _sync_volume(self, name: str) -> None:
        body = self._api.objects[VOLUMES].get(name)
        if body is None:
            return
        claimed = body["spec"].get("claimRef")
        if not claimed:
            self._set_phase(name, body, "Available")
            return
        claim = self._api.objects[CLAIMS].get(claim_of(body))
        if claim is None or claim["metadata"]["uid"] != claimed["uid"]:
            if body["status"]["phase"] != "Released":
                self._set_phase(name, body, "Released")
                self._api.later(FREED_AFTER_S + self._random.random(), partial(self._free, name))
        elif not claim["spec"].get("volumeName"):
            self._bind(name, body, claim)
        elif claim["spec"]["volumeName"] == name:
            self._set_phase(name, body, "Bound")
        elif bound_by_controller(body):
            self._free(name)

    def _bind(self, name: str, body: Body, claim: Body) -> None:
        key = claim_of(body)
        self._set_phase(name, body, "Bound")
        annotations = claim["metadata"].get("annotations", {}) | {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
        bound = {
            **claim,
            "metadata": {**claim["metadata"], "annotations": annotations},
            "spec": {**claim["spec"], "volumeName": name},
            "status": {"phase": "Bound"},
        }
        self._api.put(CLAIMS, key, bound)

    def _set_phase(self, name: str, body: Body, phase: str) -> None:
        if body["status"]["phase"] != phase:
            self._api.put(VOLUMES, name, {**body, "status": {"phase": phase}})

    def _free(self, name: str) -> None:
        """Deletes a volume that was provisioned; makes a local one available to other claims."""
        body = self._api.objects[VOLUMES].get(name)
        if body is None:
            return
        if body["spec"]["storageClassName"] == MADE:
            self._api.remove(VOLUMES, name)
            return
        spec = {key: value for key, value in body["spec"].items() if key != "claimRef"}
        annotations = body["metadata"].get("annotations", {})
        kept = {key: value for key, value in annotations.items() if key != BOUND_BY_CONTROLLER}
        free = {**body, "metadata": {**body["metadata"], "annotations": kept}, "spec": spec}
        self._api.put(VOLUMES, name, {**free, "status": {"phase": "Available"}})

    def _sync_claim(self, key: str) -> None:
        body = self._api.objects[CLAIMS].get(key)
        if body is None:
            return
        if body["metadata"].get("deletionTimestamp"):
            if not any(
                key in claims_of(pod) for pod in self._api.objects["pods"].values() if pod["spec"].get("nodeName")
            ):
                self._api.remove(CLAIMS, key)
            return
        node = body["metadata"].get("annotations", {}).get(SELECTED_NODE)
        if body["spec"]["storageClassName"] != MADE or body["spec"].get("volumeName") or not node:
            return
        name = f"made-{body['metadata']['uid']}"
        if name in self._api.objects[VOLUMES]:
            return
        if node not in self._api.objects["nodes"] or (not self._is_calm() and self._random.random() < REJECTS):
            annotations = {
                name: text for name, text in body["metadata"]["annotations"].items() if name != SELECTED_NODE
            }
            self._api.put(CLAIMS, key, {**body, "metadata": {**body["metadata"], "annotations": annotations}})
            return
        size = body["spec"]["resources"]["requests"]["storage"]
        self._api.create(VOLUMES, volume(name, MADE, node, size, body))


def claim_of(body: Body) -> str:
    """Returns the key of the claim that a volume names; empty without one."""
    claimed = body["spec"].get("claimRef") or {}
    return f"{claimed['namespace']}/{claimed['name']}" if claimed else ""
