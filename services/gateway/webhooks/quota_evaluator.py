"""Quota evaluation of pods at admission (gate EnableQuotaAdmission): a pod is admitted once its quota's usage was
raised.

A replica evaluates the pods of one quota in batches, one at a time; pods that arrive meanwhile form the next batch. The
write is conditional on the usage that was read: if another replica has changed it, the quota is read again.

Source: spec/quota.md 5.5; upstream pkg/webhook/quotaevaluate.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from services.gateway.effects.intent_types import ObjectRef
from services.gateway.kube_api.api_errors import Busy, Conflict, Rejected
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import RESOURCES
from services.gateway.webhooks.admission_handlers import AdmissionHandlers
from services.gateway.webhooks.admission_review import Request
from shared.admission.quota.quota_evaluation import Evaluated, again, evaluate, evaluated_by
from shared.admission.rejection import AdmissionRejected
from shared.domain.amounts import Amounts
from shared.kube.elastic_quota import PREFIX
from shared.kube.quantity_text import amount_text

Raw = dict[str, Any]

CHILD_REQUEST = PREFIX + "child-request"
_ANNOTATIONS = "/metadata/annotations"
_CHILD_REQUEST_PATH = f"{_ANNOTATIONS}/{CHILD_REQUEST.replace('/', '~1')}"

MIN_TRIES = 3
"""Minimum number of writes tried for one batch; larger batches get more."""


class PendingPod(NamedTuple):
    """A pod that waits for its batch to be evaluated."""

    pod: Raw
    answer: asyncio.Future[AdmissionRejected | None]


class QuotaEvaluator:
    """Evaluates pods in batches by quota."""

    def __init__(self, api: KubeApi, now_ns: Callable[[], int]) -> None:
        self._api = api
        self._now_ns = now_ns
        self._waiting: dict[ObjectRef, list[PendingPod]] = {}
        self._workers: set[asyncio.Task[None]] = set()

    async def evaluate_quota(self, handlers: AdmissionHandlers, request: Request) -> None:
        """Admits a pod if its quota has capacity, and adds the pod to the usage unless the request is a dry run.

        Raises:
            AdmissionRejected: `quotaExceeded`, `quotaUnreadable`, `quotaMissing`, `quotaAmbiguous`.
            ApiError: the quota cannot be read or written.
        """
        pod, old = request.object, request.old_object
        if pod is None or request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return
        name = evaluated_by(pod, old, request.namespace, handlers.state.topology.quotas, handlers.settings.gates)
        if not name:
            return
        found = handlers.state.quotas_named(name)
        if not found:
            raise AdmissionRejected(
                "quotaMissing", f"quota {name} of the pod does not exist; create it or correct the label"
            )
        if len(found) > 1:
            keys = ", ".join(key for _, key in found)
            raise AdmissionRejected(
                "quotaAmbiguous", f"there is more than one quota {name}: {keys}; delete all but one"
            )
        ref = ObjectRef(*found[0])
        if request.dry_run:
            rejection = evaluate(await self._read(ref), [pod], self._now_ns()).rejections[0]
        else:
            rejection = await self._evaluate_in_batch(ref, pod)
        if rejection is not None:
            raise rejection

    async def _evaluate_in_batch(self, ref: ObjectRef, pod: Raw) -> AdmissionRejected | None:
        waiting = PendingPod(pod, asyncio.get_running_loop().create_future())
        if ref in self._waiting:
            self._waiting[ref].append(waiting)
        else:
            self._waiting[ref] = [waiting]
            worker = asyncio.create_task(self._evaluate_batches(ref), name=f"evaluate {ref.key}")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        return await waiting.answer

    async def _evaluate_batches(self, ref: ObjectRef) -> None:
        """Evaluates batch by batch, until no pod waits."""
        while batch := [each for each in self._waiting[ref] if not each.answer.done()]:
            self._waiting[ref] = []
            try:
                rejections = await self._evaluate(ref, [each.pod for each in batch])
            except Exception as error:  # noqa: BLE001  passed on to the waiting requests
                for each in batch:
                    if not each.answer.done():
                        each.answer.set_exception(error)
                continue
            for each, outcome in zip(batch, rejections, strict=True):
                if not each.answer.done():
                    each.answer.set_result(outcome)
        del self._waiting[ref]

    async def _evaluate(self, ref: ObjectRef, pods: list[Raw]) -> list[AdmissionRejected | None]:
        quota = await self._read(ref)
        result = evaluate(quota, pods, self._now_ns())
        for _ in range(MIN_TRIES + len(pods).bit_length()):
            if result.child_request is None:
                return result.rejections
            try:
                await self._write(ref, quota, result.child_request)
            except (Conflict, Rejected):
                # Another replica has changed the usage since it was read; a failed `test` of a JSON patch is a 422.
                quota = await self._read(ref)
                total = again(quota, result.added)
                result = (
                    evaluate(quota, pods, self._now_ns())
                    if total is None
                    else Evaluated(result.rejections, total, result.added)
                )
                continue
            return result.rejections
        raise Busy(f"quota {ref.key} is written by others all the time; the pod was not evaluated")

    async def _read(self, ref: ObjectRef) -> Raw:
        path = RESOURCES[ref.resource].path(ref.key)
        quota: Raw = msgspec.json.decode(await self._api.call("GET", path, f"get {ref.resource}"))
        return quota

    async def _write(self, ref: ObjectRef, quota: Raw, total: Amounts) -> None:
        texts = {name: amount_text(name, size) for name, size in sorted(total.items())}
        annotations = quota["metadata"].get("annotations")
        steps: list[Raw] = []
        if annotations is None:
            steps = [
                {"op": "test", "path": _ANNOTATIONS, "value": None},
                {"op": "add", "path": _ANNOTATIONS, "value": {}},
            ]
        # Only the usage is compared: other clients may write the rest of the quota meanwhile.
        steps.append({"op": "test", "path": _CHILD_REQUEST_PATH, "value": (annotations or {}).get(CHILD_REQUEST)})
        steps.append({"op": "add", "path": _CHILD_REQUEST_PATH, "value": msgspec.json.encode(texts).decode()})
        path = RESOURCES[ref.resource].path(ref.key)
        await self._api.call("PATCH", path, f"patch {ref.resource}", steps, "application/json-patch+json")
