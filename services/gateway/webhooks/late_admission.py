"""Late admission of pods that were created while no webhook answered, as long as they have no node.

Labels and annotations of matching profiles are still applied. Fields that only a new pod can have (resources, priority,
schedulerName) and rejections cannot be made up for: they are reported as `AdmissionMissed` in the log and as a
Kubernetes Event on the pod.

Source: spec/api.md 5.3, background controller.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from services.gateway.kube_api.api_errors import ApiError, Conflict, NotFound
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import PODS
from services.gateway.state import GatewayState
from services.gateway.webhooks.admission_handlers import APPLIED_PROFILES, AdmissionHandlers, percent_draw
from services.gateway.webhooks.admission_state import NAMESPACES
from shared.admission.pod import pod_admission
from shared.admission.pod.colocation_profile import applied, matching
from shared.admission.pod.pod_json import annotations_of, labels_of
from shared.admission.rejection import AdmissionRejected
from shared.events import Draft, RecordedEvent
from shared.events.cluster import AdmissionMissed, PodObserved
from shared.kube.instants import SECOND, instant_text
from shared.runtime.rate_limit import RateLimit

log = logging.getLogger(__name__)

Raw = dict[str, Any]

CHECKS_PER_S = 10
"""Limit of pods that are read from the API and written; upstream's controller has the same."""

RETRY_AFTER_S = 5.0
"""Pause before a pod is checked again after an API error."""


class LateAdmission:
    """Checks each pod that is observed without a node, once."""

    def __init__(
        self,
        api: KubeApi,
        handlers: Callable[[], AdmissionHandlers],
        state: Callable[[], GatewayState],
        append: Callable[[Draft], None],
    ) -> None:
        """Starts with an empty queue.

        Args:
            append: receives events for the log.
        """
        self._api = api
        self._handlers = handlers
        self._state = state
        self._append = append
        self._queue: deque[tuple[str, str, Raw | None]] = deque()  # key, uid, the pod as observed
        self._known: dict[str, str] = {}  # uid -> key
        self._wake = asyncio.Event()
        self._rate_limit = RateLimit(CHECKS_PER_S, burst_s=10)

    def observe(self, record: RecordedEvent) -> None:
        """Queues a pod that is observed for the first time."""
        event = record.event
        if isinstance(event, PodObserved) and not event.object.spec.node_name and event.pod_uid not in self._known:
            self._enqueue(event.pod, event.pod_uid, msgspec.to_builtins(event.object))

    def _enqueue(self, key: str, uid: str, pod: Raw | None) -> None:
        self._known[uid] = key
        self._queue.append((key, uid, pod))
        self._wake.set()

    async def run(self, now_ns: Callable[[], int]) -> None:
        """Checks queued pods until cancelled, beginning with those observed before this replica was the leader."""
        for key, pod in list(self._state().pods.items()):
            if not pod.node and (uid := pod.uid) not in self._known:
                self._enqueue(key, uid, None)
        while True:
            while self._queue:
                key, uid, seen = self._queue.popleft()
                if self._is_open(key, uid):
                    await self._check(key, uid, seen, now_ns)
                # A check without a request never suspends: let other tasks run between two pods of a long queue.
                await asyncio.sleep(0)
            if len(self._known) > 2 * len(self._state().pods) + 1_000:
                self._known = {uid: key for uid, key in self._known.items() if self._state().pod(key, uid)}
            self._wake.clear()
            await self._wake.wait()

    def _is_open(self, key: str, uid: str) -> bool:
        state = self._state()
        pod = state.pod(key, uid)
        return pod is not None and not pod.node and not pod.terminating and uid not in state.late_admitted

    async def _check(self, key: str, uid: str, seen: Raw | None, now_ns: Callable[[], int]) -> None:
        try:
            if seen is not None and not self._missed(seen):
                return
            await self._rate_limit.wait()
            # Read again: the observation is older, and a write needs the current resourceVersion.
            pod = msgspec.json.decode(await self._api.call("GET", PODS.path(key), "get pods"))
            if pod["metadata"]["uid"] == uid and not pod["spec"].get("nodeName") and self._missed(pod):
                await self._admit_late(key, pod, now_ns())
        except NotFound:
            return
        except Conflict:
            self._queue.append((key, uid, seen))
        except ApiError as error:
            log.warning("a pod's late admission is postponed", extra={"pod": key, "error": str(error)})
            asyncio.get_running_loop().call_later(RETRY_AFTER_S, self._enqueue, key, uid, seen)

    def _missed(self, pod: Raw) -> bool:
        """Returns whether a webhook would have changed or rejected the pod."""
        return bool(self._profiles(pod)) or bool(self._refusal(pod))

    def _profiles(self, pod: Raw) -> list[Mapping[str, Any]]:
        """Returns the profiles that a webhook would have applied: those that existed when the pod was created."""
        handlers = self._handlers()
        if (
            self._exempt(pod, handlers)
            or APPLIED_PROFILES in annotations_of(pod)
            or "PodMutatingWebhook" not in handlers.settings.gates
        ):
            return []
        world, created = handlers.world(), pod["metadata"].get("creationTimestamp", "")
        chosen = matching(pod, pod["metadata"]["namespace"], world.profiles, world.namespaces)
        return [each for each in chosen if each["metadata"].get("creationTimestamp", "") <= created]

    def _refusal(self, pod: Raw) -> str:
        handlers = self._handlers()
        if self._exempt(pod, handlers) or "PodValidatingWebhook" not in handlers.settings.gates:
            return ""
        try:
            pod_admission.check(handlers.world(), pod, None, pod["metadata"]["namespace"])
        except AdmissionRejected as refused:
            return f"would have been refused: {refused}"
        return ""

    @staticmethod
    def _exempt(pod: Raw, handlers: AdmissionHandlers) -> bool:
        namespace = pod["metadata"]["namespace"]
        there = handlers.state.by_name(NAMESPACES).get(namespace) or {}
        return namespace == handlers.settings.namespace or "control-plane" in labels_of(there)

    async def _admit_late(self, key: str, pod: Raw, now_ns: int) -> None:
        """Applies labels and annotations, and reports the rest."""
        chosen, problems = self._profiles(pod), []
        names = tuple(str(profile["metadata"]["name"]) for profile in chosen)
        done: tuple[str, ...] = ()
        if chosen:
            world, draw = self._handlers().world(), percent_draw(pod["metadata"]["uid"])
            namespace = pod["metadata"]["namespace"]
            try:
                whole = pod_admission.mutated(world, pod, namespace, draw)
                after = applied(pod, chosen, world.classes, draw, translates=False)
            except AdmissionRejected as refused:
                problems.append(f"would have been refused: {refused}")
            else:
                done = await self._label(key, pod, after, names)
                if fields := [name for name, part in whole["spec"].items() if part != pod["spec"].get(name)]:
                    listed = ", ".join(f"spec.{name}" for name in sorted(fields))
                    problems.append(
                        f"profiles {', '.join(names)} would have changed {listed}, which only a new pod can have"
                    )
        if refusal := self._refusal(pod):
            problems.append(refusal)
        uid = pod["metadata"]["uid"]
        self._append(
            Draft(
                AdmissionMissed(
                    resource=PODS.name, name=key, uid=uid, profiles=names, applied=done, problems=tuple(problems)
                )
            )
        )
        log.warning("a pod was created past the webhooks", extra={"pod": key, "applied": done, "problems": problems})
        if problems:
            await self._record_event(key, uid, "; ".join(problems), now_ns)

    async def _label(self, key: str, pod: Raw, after: Raw, names: tuple[str, ...]) -> tuple[str, ...]:
        """Writes the labels and annotations that differ, if the pod still has the version that was read."""
        metadata: Raw = {
            "uid": pod["metadata"]["uid"],
            "resourceVersion": pod["metadata"]["resourceVersion"],
            "annotations": {APPLIED_PROFILES: ",".join(names)},
        }
        for kind in ("labels", "annotations"):
            before, now = pod["metadata"].get(kind) or {}, after["metadata"].get(kind) or {}
            changed = {name: now.get(name) for name in {**before, **now} if before.get(name) != now.get(name)}
            metadata.setdefault(kind, {}).update(changed)
        await self._api.patch(PODS, key, {"metadata": metadata})
        return tuple(sorted({*metadata["labels"], *metadata["annotations"]} - {APPLIED_PROFILES}))

    async def _record_event(self, key: str, uid: str, text: str, now_ns: int) -> None:
        namespace, _, name = key.partition("/")
        now = instant_text(now_ns // SECOND * SECOND)
        mark = blake2b(f"{uid} AdmissionMissed".encode(), digest_size=8).hexdigest()
        message = f"created while no admission webhook answered: {text}; delete it so that it is created again"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{mark}", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid},
            "type": "Warning",
            "reason": "AdmissionMissed",
            "action": "Admission",
            "message": message[:1024],
            "source": {"component": "koordstream/gateway"},
            "reportingComponent": "koordstream/gateway",
            "reportingInstance": "koordstream/gateway",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.record_event(namespace, body, {"lastTimestamp": now})
        except ApiError as error:
            log.warning("no Kubernetes Event was recorded", extra={"pod": key, "error": str(error)})
