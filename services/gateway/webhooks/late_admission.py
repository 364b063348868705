"""Pods that came in while no webhook answered: judged when they are seen, as long as they wait for a node.

What a profile says about labels and annotations is still applied. What only a new pod can have (resources, priority, the scheduler's
name) and what would have been refused is told: as an event in the log, and as a Kubernetes Event on the pod.

Source: spec/api.md 5.3, background controller.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from services.gateway.kube_api.api_errors import ApiProblem, Conflict, NotFound
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import PODS
from services.gateway.rate_limit import Pace
from services.gateway.state import GatewayState
from services.gateway.webhooks.admission_state import NAMESPACES
from services.gateway.webhooks.handlers import MARK, Desk, draw_of
from shared.admission.pod import pod_admission
from shared.admission.pod.colocation_profile import applied, matching
from shared.admission.pod.pod_json import annotations_of, labels_of
from shared.admission.rejection import Refused
from shared.events import Draft, RecordedEvent
from shared.events.cluster import AdmissionMissed, PodObserved
from shared.kube.instants import SECOND, instant_text

log = logging.getLogger(__name__)

Raw = dict[str, Any]

JUDGED_PER_S = 10
"""Pods of which something must be said or written, each second; upstream's controller has the same limit."""

AGAIN_S = 5.0
"""After how long a pod is looked at again when the API could not be asked."""


class Judge:
    """Goes through the pods that are seen without a node, each once."""

    def __init__(
        self, api: KubeApi, desk: Callable[[], Desk], state: Callable[[], GatewayState], say: Callable[[Draft], None]
    ) -> None:
        """Remember whom to ask and whom to tell.

        Args:
            say: appends to the log.
        """
        self._api = api
        self._desk = desk
        self._state = state
        self._say = say
        self._due: deque[tuple[str, Raw | None]] = deque()
        self._known: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._pace = Pace(JUDGED_PER_S, burst_s=10)

    def look(self, record: RecordedEvent) -> None:
        """Take note of a pod that is seen for the first time."""
        event = record.event
        if isinstance(event, PodObserved) and not event.object.spec.node_name and event.pod_uid not in self._known:
            self._note(event.pod_uid, msgspec.to_builtins(event.object))

    def _note(self, uid: str, pod: Raw | None) -> None:
        self._known[uid] = None
        self._due.append((uid, pod))
        self._wake.set()

    async def run(self, now_ns: Callable[[], int]) -> None:
        """Judge until cancelled; first what was seen before this replica led."""
        for uid, pod in list(self._state().pods.items()):
            if not pod.node and uid not in self._known:
                self._note(uid, None)
        while True:
            while self._due:
                uid, seen = self._due.popleft()
                if self._waits(uid):
                    await self._judge(uid, seen, now_ns)
                await asyncio.sleep(0)
            if len(self._known) > 2 * len(self._state().pods) + 1_000:
                self._known = {uid: None for uid in self._known if uid in self._state().pods}
            self._wake.clear()
            await self._wake.wait()

    def _waits(self, uid: str) -> bool:
        state = self._state()
        pod = state.pods.get(uid)
        return pod is not None and not pod.node and not pod.leaving and uid not in state.judged

    async def _judge(self, uid: str, seen: Raw | None, now_ns: Callable[[], int]) -> None:
        key = self._state().pods[uid].key
        try:
            if seen is not None and not self._lacks(seen):
                return
            await self._pace.turn()
            pod = msgspec.json.decode(await self._api.call("GET", PODS.path(key), "get pods"))
            if pod["metadata"]["uid"] == uid and not pod["spec"].get("nodeName") and self._lacks(pod):
                await self._mend(key, pod, now_ns())
        except NotFound:
            return
        except Conflict:
            self._due.append((uid, seen))
        except ApiProblem as problem:
            log.warning("a pod cannot be judged yet", extra={"pod": key, "error": str(problem)})
            asyncio.get_running_loop().call_later(AGAIN_S, self._again, uid, seen)

    def _again(self, uid: str, seen: Raw | None) -> None:
        self._due.append((uid, seen))
        self._wake.set()

    def _lacks(self, pod: Raw) -> bool:
        """Whether a webhook would have changed or refused it."""
        return bool(self._profiles(pod)) or bool(self._refusal(pod))

    def _profiles(self, pod: Raw) -> list[Mapping[str, Any]]:
        """The profiles that a webhook would have applied: those there were when it was made."""
        desk = self._desk()
        if self._exempt(pod, desk) or MARK in annotations_of(pod) or "PodMutatingWebhook" not in desk.terms.gates:
            return []
        world, made = desk.world(), pod["metadata"].get("creationTimestamp", "")
        chosen = matching(pod, pod["metadata"]["namespace"], world.profiles, world.namespaces)
        return [each for each in chosen if each["metadata"].get("creationTimestamp", "") <= made]

    def _refusal(self, pod: Raw) -> str:
        desk = self._desk()
        if self._exempt(pod, desk) or "PodValidatingWebhook" not in desk.terms.gates:
            return ""
        try:
            pod_admission.check(desk.world(), pod, None, pod["metadata"]["namespace"])
        except Refused as refused:
            return f"would have been refused: {refused}"
        return ""

    @staticmethod
    def _exempt(pod: Raw, desk: Desk) -> bool:
        namespace = pod["metadata"]["namespace"]
        there = desk.view.by_name(NAMESPACES).get(namespace) or {}
        return namespace == desk.terms.namespace or "control-plane" in labels_of(there)

    async def _mend(self, key: str, pod: Raw, now_ns: int) -> None:
        """Apply what still can be, and tell the rest."""
        chosen, problems = self._profiles(pod), []
        names = tuple(str(profile["metadata"]["name"]) for profile in chosen)
        done: tuple[str, ...] = ()
        if chosen:
            world, draw, namespace = self._desk().world(), draw_of(pod["metadata"]["uid"]), pod["metadata"]["namespace"]
            try:
                whole = pod_admission.mutated(world, pod, namespace, draw)
                after = applied(pod, chosen, world.classes, draw, translates=False)
            except Refused as refused:
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
        self._say(
            Draft(
                AdmissionMissed(
                    resource=PODS.name, name=key, uid=uid, profiles=names, applied=done, problems=tuple(problems)
                )
            )
        )
        log.warning("a pod came in past the webhooks", extra={"pod": key, "applied": done, "problems": problems})
        if problems:
            await self._tell(key, uid, "; ".join(problems), now_ns)

    async def _label(self, key: str, pod: Raw, after: Raw, names: tuple[str, ...]) -> tuple[str, ...]:
        """Write what differs in labels and annotations, if the pod is still as it was read."""
        metadata: Raw = {
            "uid": pod["metadata"]["uid"],
            "resourceVersion": pod["metadata"]["resourceVersion"],
            "annotations": {MARK: ",".join(names)},
        }
        for kind in ("labels", "annotations"):
            before, now = pod["metadata"].get(kind) or {}, after["metadata"].get(kind) or {}
            changed = {name: now.get(name) for name in {**before, **now} if before.get(name) != now.get(name)}
            metadata.setdefault(kind, {}).update(changed)
        await self._api.patch(PODS, key, {"metadata": metadata})
        return tuple(sorted({*metadata["labels"], *metadata["annotations"]} - {MARK}))

    async def _tell(self, key: str, uid: str, text: str, now_ns: int) -> None:
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
        except ApiProblem as problem:
            log.warning("no Kubernetes Event was recorded", extra={"pod": key, "error": str(problem)})
