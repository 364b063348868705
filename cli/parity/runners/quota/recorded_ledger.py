"""A quota ledger that reads a recorded history as events of `cluster` and `scheduling`, and records its decisions.

Some recorded steps have no event of their own:

- A feature gate of upstream's that the ledger lacks changes the objects: with `ElasticQuotaIgnorePodOverhead` pods come
  without overhead; a terminating pod that a gate ignores is a deleted one.
- `reserve` is a placement in the log of `scheduling`, `unreserve` the rejection of its binding.
- `migrateDefault` is nothing: the ledger moves pods as soon as their quota is there.
- An update that leaves the resourceVersion as it was does not come from an API server; it is not delivered.
- An eviction has its outcome at once: upstream evicts without waiting, and looks at the pods anew each time.
- The two maxima of upstream's arguments are those of the objects that upstream's scheduler creates with them.

The ledger runs with `check_quotas` off: recorded histories are those of a cluster without webhooks, whose scheduler
takes what the API stores.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from services.quota_ledger.decide.decide_ledger_events import caught_up
from services.quota_ledger.pods.pod_quota_entry import AttachedPod
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    BindRejected,
    NodeDeleted,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced
from shared.kube import resource_names
from shared.kube.elastic_quota import DEFAULT, SYSTEM
from shared.kube.instants import SECOND, instant_ns
from shared.kube.node import Node
from shared.kube.pod import Pod

Raw = Mapping[str, Any]

_MAXIMA = ((SYSTEM, "systemQuotaGroupMax"), (DEFAULT, "defaultQuotaGroupMax"))


class RecordedLedger:
    """A ledger after a sequence of recorded events.

    Attributes:
        delivered: names of the quotas of which the history itself has brought an object.
        followed: every event of `cluster` and `scheduling` so far; recorded: every event of the ledger's own.
    """

    def __init__(self, given: Raw) -> None:
        args = given["args"]
        self.gates = set(given["featureGates"])
        self.now_ns = instant_ns(given["now"])
        self.settings = LedgerSettings(
            multi_tree="MultiQuotaTree" in self.gates,
            default_group="DisableDefaultQuota" not in self.gates,
            scale_min=args.get("enableMinQuotaScale", True),
            guarantees="ElasticQuotaGuaranteeUsage" in self.gates,
            check_quotas=False,
            rejected_quota_waits=False,
            compare_runtime=args.get("enableRuntimeQuota", True),
            check_parents=args.get("enableCheckParentQuota", False),
        )
        self.state = self.settings.new_state()
        self.delivered: set[str] = set()
        self.followed: list[RecordedEvent] = []
        self.recorded: list[Event] = []
        self._placements: dict[str, int] = {}
        for name, arg in _MAXIMA:
            if args.get(arg):
                self._observe_quota(
                    {"metadata": {"name": name, "namespace": "koordinator-system"}, "spec": {"max": args[arg]}}
                )
        self.catch_up()

    def take(self, event: Raw) -> None:
        """Delivers one recorded event."""
        match event["type"]:
            case "nodeAdd" | "nodeUpdate":
                node = msgspec.convert(event["node"], Node)
                self._append("cluster", NodeObserved(node=node.metadata.name, object=node))
            case "nodeDelete":
                self._append("cluster", NodeDeleted(node=event["node"]["metadata"]["name"], node_uid=""))
            case "quotaAdd" | "quotaUpdate":
                self.delivered.add(event["quota"]["metadata"]["name"])
                self._observe_quota(event["quota"])
            case "quotaDelete":
                self.delivered.discard(event["quota"]["metadata"]["name"])
                self._lose_quota(_key(event["quota"]))
            case "replaceQuotas":
                for raw in event["quotas"]:  # the list with which a scheduler starts: there is nothing yet to replace
                    self.delivered.add(raw["metadata"]["name"])
                    self._observe_quota(raw)
            case "podAdd":
                self._observe_pod(event["pod"])
            case "podUpdate":
                if event["old"]["metadata"].get("resourceVersion") != event["pod"]["metadata"].get("resourceVersion"):
                    self._observe_pod(event["pod"])
            case "podDelete":
                self._lose_pod(pod_key(event["pod"]))
            case "reserve":
                self._place(pod_key(event["pod"]))
            case "unreserve":
                self._reject(pod_key(event["pod"]))
        self.catch_up()

    @classmethod
    def after(cls, given: Raw) -> "RecordedLedger":
        """Returns the ledger after all events of a case."""
        ledger = cls(given)
        for event in given["events"]:
            ledger.take(event)
        return ledger

    def record(self, events: Iterable[Event]) -> None:
        """Appends events to the ledger's own log and folds them."""
        for event in events:
            seq = self.state.positions.get("quota", 0) + 1
            self.state.apply(RecordedEvent("quota", seq, event, self.now_ns))
            self.recorded.append(event)

    @property
    def trees(self) -> Mapping[str, QuotaTree]:
        """The ledger's trees."""
        return self.state.projection.trees

    def quota_of(self, pod: Pod) -> tuple[str, QuotaTree | None]:
        """Returns the quota that a pod belongs to and its tree; None for a pod that no quota manages."""
        projection = self.state.projection
        quota, _ = projection.lookup.resolve(pod.metadata.namespace, pod.metadata.labels)
        tree = projection.tree_of.get(quota)
        return quota, None if tree is None else self.trees[tree]

    def held(self, key: str) -> AttachedPod | None:
        """Returns the charges of a pod by namespace/name; None without any."""
        return self.state.projection.pods.get(key)

    def pods_of(self, tree: str, quota: str) -> dict[str, AttachedPod]:
        """The pods of a quota, by namespace/name."""
        projection = self.state.projection
        held = {uid: projection.pods[uid] for uid in projection.pods_of(quota)}
        return {uid: pod for uid, pod in held.items() if pod.tree == tree}

    def without_overhead(self, pod: Pod) -> Pod:
        """Returns a pod as the ledger reads it, without its overhead where a gate of upstream's leaves that out."""
        if "ElasticQuotaIgnorePodOverhead" not in self.gates or not pod.spec.overhead:
            return pod
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, overhead=None))

    def _observe_pod(self, raw: Raw) -> None:
        key = pod_key(raw)
        if self._is_ignored(raw["metadata"]):
            self._lose_pod(key)
        else:
            pod = self.without_overhead(msgspec.convert(raw, Pod))
            self._append("cluster", PodObserved(pod=key, pod_uid=key, object=pod))

    def _lose_pod(self, key: str) -> None:
        if key in self.state.pods.entries:
            self._append("cluster", PodDeleted(pod=key, pod_uid=key))

    def _place(self, key: str) -> None:
        if key not in self.state.pods.entries:
            return
        placed = PodPlaced(pod_uid=key, pod=key, node="", cycle=0, request={})
        self._append("scheduling", placed)
        self._placements[key] = self.state.positions["scheduling"]

    def _reject(self, key: str) -> None:
        if (seq := self._placements.get(key)) is not None:
            self._append("cluster", BindRejected(pod=key, pod_uid=key, reason=""), Cause("scheduling", seq))

    def _observe_quota(self, raw: Raw) -> None:
        observed = ObjectObserved(resource=resource_names.QUOTAS, name=_key(raw), uid="", object=dict(raw))
        self._append("cluster", observed)

    def _lose_quota(self, key: str) -> None:
        self._append("cluster", ObjectDeleted(resource=resource_names.QUOTAS, name=key, uid=""))

    def _is_ignored(self, metadata: Raw) -> bool:
        at = metadata.get("deletionTimestamp")
        if not at:
            return False
        if "ElasticQuotaImmediateIgnoreTerminatingPod" in self.gates:
            return True
        grace_ns = (metadata.get("deletionGracePeriodSeconds") or 0) * SECOND
        return "ElasticQuotaIgnoreTerminatingPod" in self.gates and self.now_ns > instant_ns(at) + grace_ns

    def _append(self, context: str, event: Event, cause: Cause | None = None) -> None:
        seq = self.state.positions.get(context, 0) + 1
        record = RecordedEvent(context, seq, event, self.now_ns, cause)
        self.followed.append(record)
        self.state.apply(record)

    def catch_up(self) -> None:
        """Lets the ledger decide until there is nothing left to decide."""
        for record in caught_up(self.state, self.settings, self.now_ns):
            self.recorded.append(record.event)
            match record.event:
                case EvictionRequested(pod=pod, pod_uid=uid):
                    self._append("cluster", PodEvicted(pod=pod, pod_uid=uid), Cause("quota", record.seq))


def pod_key(raw: Raw) -> str:
    """namespace/name of a recorded pod, which is its identity: recorded pods have no uid."""
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"


def _key(raw: Raw) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"
