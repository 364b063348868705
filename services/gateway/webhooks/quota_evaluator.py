"""Pods measured against their quotas at admission (gate EnableQuotaAdmission): the number that an accepted pod raises is written first.

Of one quota a replica writes one batch at a time; what comes meanwhile is the next one. The number is written only where it is still what
was read: who is late reads again.

Source: spec/quota.md 5.5; upstream pkg/webhook/quotaevaluate.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from services.gateway.effects.intents import Place
from services.gateway.kube_api.api_errors import Busy, Conflict, Rejected
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import RESOURCES
from services.gateway.webhooks.admission_review import Request
from services.gateway.webhooks.handlers import Desk
from shared.admission.quota.quota_evaluation import Evaluated, again, evaluate, evaluated_by
from shared.admission.rejection import Refused
from shared.domain.amounts import Amounts
from shared.kube.elastic_quota import PREFIX
from shared.kube.quantity_text import amount_text

Raw = dict[str, Any]

CHILD_REQUEST = PREFIX + "child-request"
_ANNOTATIONS = "/metadata/annotations"
_ASKED = f"{_ANNOTATIONS}/{CHILD_REQUEST.replace('/', '~1')}"

LEAST_TRIES = 3
"""Writes of one batch, at least; larger batches get more."""


class Waiting(NamedTuple):
    """A pod whose answer waits for its batch."""

    pod: Raw
    answer: asyncio.Future[Refused | None]


class Evaluator:
    """Batches by quota."""

    def __init__(self, api: KubeApi, now_ns: Callable[[], int]) -> None:
        self._api = api
        self._now_ns = now_ns
        self._waiting: dict[Place, list[Waiting]] = {}
        self._workers: set[asyncio.Task[None]] = set()

    async def measure(self, desk: Desk, request: Request) -> None:
        """Let a pod in if its quota has room, and note that it takes some; a dry run notes nothing.

        Raises:
            Refused: `quotaExceeded`, `quotaUnreadable`, `quotaMissing`, `quotaAmbiguous`.
            ApiProblem: the quota cannot be read or written.
        """
        pod, old = request.object, request.old_object
        if pod is None or request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return
        name = evaluated_by(pod, old, request.namespace, desk.view.topology.quotas, desk.terms.gates)
        if not name:
            return
        found = desk.view.quotas_named(name)
        if not found:
            raise Refused("quotaMissing", f"quota {name} of the pod does not exist; create it or correct the label")
        if len(found) > 1:
            keys = ", ".join(key for _, key in found)
            raise Refused("quotaAmbiguous", f"there is more than one quota {name}: {keys}; delete all but one")
        place = Place(*found[0])
        if request.dry_run:
            refused = evaluate(await self._read(place), [pod], self._now_ns()).refused[0]
        else:
            refused = await self._queued(place, pod)
        if refused is not None:
            raise refused

    async def _queued(self, place: Place, pod: Raw) -> Refused | None:
        waiting = Waiting(pod, asyncio.get_running_loop().create_future())
        if place in self._waiting:
            self._waiting[place].append(waiting)
        else:
            self._waiting[place] = [waiting]
            worker = asyncio.create_task(self._work(place), name=f"evaluate {place.key}")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        return await waiting.answer

    async def _work(self, place: Place) -> None:
        """Batch by batch, until nobody waits."""
        while batch := [each for each in self._waiting[place] if not each.answer.done()]:
            self._waiting[place] = []
            try:
                refused = await self._evaluate(place, [each.pod for each in batch])
            except Exception as error:  # noqa: BLE001  whoever waits gets it
                for each in batch:
                    if not each.answer.done():
                        each.answer.set_exception(error)
                continue
            for each, outcome in zip(batch, refused, strict=True):
                if not each.answer.done():
                    each.answer.set_result(outcome)
        del self._waiting[place]

    async def _evaluate(self, place: Place, pods: list[Raw]) -> list[Refused | None]:
        quota = await self._read(place)
        said = evaluate(quota, pods, self._now_ns())
        for _ in range(LEAST_TRIES + len(pods).bit_length()):
            if said.child_request is None:
                return said.refused
            try:
                await self._write(place, quota, said.child_request)
            except (Conflict, Rejected):  # the number is another one than was read
                quota = await self._read(place)
                total = again(quota, said.added)
                said = (
                    evaluate(quota, pods, self._now_ns())
                    if total is None
                    else Evaluated(said.refused, total, said.added)
                )
                continue
            return said.refused
        raise Busy(f"quota {place.key} is written by others all the time; the pod was not measured")

    async def _read(self, place: Place) -> Raw:
        path = RESOURCES[place.resource].path(place.key)
        quota: Raw = msgspec.json.decode(await self._api.call("GET", path, f"get {place.resource}"))
        return quota

    async def _write(self, place: Place, quota: Raw, total: Amounts) -> None:
        texts = {name: amount_text(name, size) for name, size in sorted(total.items())}
        annotations = quota["metadata"].get("annotations")
        steps: list[Raw] = []
        if annotations is None:
            steps = [
                {"op": "test", "path": _ANNOTATIONS, "value": None},
                {"op": "add", "path": _ANNOTATIONS, "value": {}},
            ]
        # Only this number must be as it was read: others may write the rest of the quota meanwhile.
        steps.append({"op": "test", "path": _ASKED, "value": (annotations or {}).get(CHILD_REQUEST)})
        steps.append({"op": "add", "path": _ASKED, "value": msgspec.json.encode(texts).decode()})
        path = RESOURCES[place.resource].path(place.key)
        await self._api.call("PATCH", path, f"patch {place.resource}", steps, "application/json-patch+json")
