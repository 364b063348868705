"""The controller of ReplicaSets: a pod that terminates, ends or is gone is replaced by a new one."""

import random
from functools import partial
from itertools import count

from cli.dev.fault_simulation import migrations
from cli.dev.fault_simulation.memory_api import ApiServer, Body
from shared.kube.pod import ENDED_PHASES
from shared.kube.resource_names import POD_GROUPS

REPLACES_AFTER_S = 0.2


class WorkloadController:
    """Keeps the number of pods of each ReplicaSet."""

    def __init__(self, api: ApiServer, seed: int) -> None:
        self._api = api
        self._random = random.Random(seed)  # noqa: S311
        self._number = count().__next__
        self._due: dict[str, None] = {}

    def changed(self, resource: str, key: str, before: Body | None, after: Body | None) -> None:
        """Considers a change of an object."""
        if resource == migrations.REPLICA_SETS and before is None:
            self._later(key)
        elif resource == "pods" and (body := after or before) is not None and (owner := owner_of(body)):
            self._later(f"{body['metadata']['namespace']}/{owner}")

    def _later(self, key: str) -> None:
        if key not in self._due:
            self._due[key] = None
            self._api.later(REPLACES_AFTER_S * (0.2 + self._random.random()), partial(self._reconcile, key))

    def _reconcile(self, key: str) -> None:
        del self._due[key]
        owner = self._api.objects[migrations.REPLICA_SETS].get(key)
        if owner is None:
            return
        name = owner["metadata"]["name"]
        live = sum(owner_of(pod) == name and _counts(pod) for pod in self._api.objects["pods"].values())
        for _ in range(owner["spec"]["replicas"] - live):
            of_gang = f"{owner['metadata']['namespace']}/{name}" in self._api.objects[POD_GROUPS]
            pod = migrations.replica(f"{name}-{self._number()}", owner, cores=1, of_gang=of_gang)
            self._api.create("pods", pod)


def owner_of(pod: Body) -> str:
    """Returns the name of a pod's controller; empty without one."""
    return next((each["name"] for each in pod["metadata"].get("ownerReferences", ())), "")


def _counts(pod: Body) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") not in ENDED_PHASES
