"""Invariants that are checked as things happen: at each write of the API server and each append to a log.

They compare with what the simulation knows for certain, the objects of the server and the rows of the log, never with
what a service believes. `at_rest.py` has those that hold once all faults have ended.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable

import msgspec

from cli.dev.fault_simulation.card_invariant import CardInvariant
from cli.dev.fault_simulation.gang_invariant import GangInvariant
from cli.dev.fault_simulation.held_capacity import KINDS, HeldCapacity, requested
from cli.dev.fault_simulation.memory_api import ApiServer, Body
from cli.dev.fault_simulation.memory_log import BEGINS_US, Row
from cli.dev.fault_simulation.migration_invariant import MigrationInvariant
from cli.dev.fault_simulation.plan import ENDS_S
from cli.dev.fault_simulation.shares import CPU, GPU, ZONE, Shares, exceeded, shares_in
from cli.dev.fault_simulation.volume_invariant import VolumeInvariant
from services.gateway.effects.eviction_budget import Limits
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    EvictionFailed,
    EvictionRejected,
    EvictionsReleased,
    IntentRefused,
    PodBound,
    PodDeleted,
    PodEvicted,
)
from shared.events.intents import EvictionRequested
from shared.events.log import CarriedForward, WriterStarted
from shared.events.scheduling import PodPlaced
from shared.kube import resource_names
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import ENDED_PHASES
from shared.kube.quantity import nanos

_PLACED = PodPlaced.type_name()
_EVICTION = EvictionRequested.type_name()
_RELEASED = EvictionsReleased.type_name()
_DELETED = PodDeleted.type_name()
_STARTED = WriterStarted.type_name()
_BOUND = PodBound.type_name()
_REFUSED = frozenset(kind.type_name() for kind in (BindRejected, BindFailed))
_COPY = CarriedForward.type_name()
_ONE_SHOT_OUTCOMES = frozenset(
    kind.type_name()
    for kind in (PodBound, BindRejected, BindFailed, PodEvicted, EvictionRejected, EvictionFailed, IntentRefused)
)

WHOLE = 100
"""Percent of a GPU."""

LATE_S = 3.0
"""Seconds before the end of a world, in which little is left to decide."""

OVERCOMMITTED = "kubernetes.io/"
"""The resources of overcommitment; those of devices go with the devices."""

EVICTING = frozenset({"scheduling", "quota", "nodes-0", "descheduling"})
"""Contexts whose services may request evictions."""

REQUEST_ONCE = frozenset({"quota", "descheduling"})
"""Contexts that repeat no eviction until the request before it has an outcome."""


class _Named(msgspec.Struct):
    pod_uid: str = ""
    node: str = ""


class Invariants:
    """History of a world, as far as the invariants need it.

    Attributes:
        one_shots: cause -> uid, of intents with a one-shot effect.
        outcomes: cause -> the type of its outcome.
        repeated: causes of evictions that their context has requested again: retention carries the newest of a pod
            forward.
        gateway_stops: when a gateway was stopped, and for how long; seconds.
        gateway_behind: until when the clock of a gateway was behind, and by how much; seconds.
        held: the capacity that Reservations and members of NonStrict gangs hold.
        cards: what is known of GPUs.
        gateway_began_s: when gateways began to lead, in order.
        gone_s: uid of a pod -> when its deletion was recorded.
        late_events: context -> number of the events that were decided in the last seconds before the end.
    """

    def __init__(self, api: ApiServer, report: Callable[[str], None], oldest_effect_s: float, budgets: Limits) -> None:
        self.one_shots: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}
        self.repeated: dict[str, None] = {}
        self.gateway_stops: list[tuple[float, float]] = []
        self.gateway_behind: list[tuple[float, float]] = []
        self.gateway_began_s: list[float] = []
        self.gone_s: dict[str, float] = {}
        self.late_events: Counter[str] = Counter()
        self.held = HeldCapacity(api, self.live_pods, self._shares_of, self._check_node, report)
        self.cards = CardInvariant(report)
        self._gangs = GangInvariant(api, report)
        self._volumes = VolumeInvariant(api, report)
        self._migrations = MigrationInvariant(api, report)
        self._api = api
        self._report = report
        self._oldest_effect_s = oldest_effect_s
        # uid -> when its newest placement, or since then the requests of its eviction, were committed
        self._decided_s: dict[str, tuple[float, ...]] = {}
        self._bound: dict[str, str] = {}  # uid -> node, by the server
        self._placed: dict[str, str] = {}  # uid -> cause of its newest placement
        self._nodes: dict[str, str] = {}  # cause of a placement -> its node
        self._shares: dict[
            str, Shares
        ] = {}  # uid -> the CPUs, parts of GPUs and of NUMA nodes that its binding gave it
        self._kept: dict[str, list[tuple[int, float]]] = {}  # context -> first seq kept after a drop, and since when
        self._evictions: dict[str, None] = {}  # uids whose eviction a log requests
        self._newest_requests: dict[tuple[str, str], str] = {}  # context and uid -> cause of its newest eviction
        self._highest_max: dict[str, int] = {}  # uid of a quota -> nanos of CPU
        self._budgets = budgets
        self._evicted: Counter[str] = Counter()  # node, or `cluster` -> pods evicted since the newest release
        self._unrecorded: dict[str, str] = {}  # uid of a pod whose eviction has no outcome in the log -> its node

    # -- the log

    def appended(self, context: str, rows: list[Row]) -> None:
        """Checks the rows of a commit."""
        if asyncio.get_running_loop().time() > ENDS_S - LATE_S:
            self.late_events[context] += sum(row.type != _COPY for row in rows)
        self._gangs.appended(context, rows)
        self._volumes.appended(context, rows)
        self._migrations.appended(context, rows)
        self.cards.appended(context, rows)
        self.held.appended(rows)
        for row in rows:
            cause = f"{context}/{row.seq}"
            if row.type == _PLACED:
                self._check_placement(cause, row)
            elif row.type == _EVICTION:
                uid = msgspec.json.decode(row.data, type=_Named).pod_uid
                self.one_shots[cause] = uid
                if (earlier := self._newest_requests.get((context, uid))) is not None:
                    self.repeated[earlier] = None
                    if context in REQUEST_ONCE and earlier not in self.outcomes:
                        self._report(f"{cause} requests the eviction of {uid} again; {earlier} has no outcome")
                self._newest_requests[context, uid] = cause
                if context in EVICTING:
                    self._evictions[uid] = None
                    # One that a clock ahead recorded stays young, also where it was requested again.
                    self._decided_s[uid] = (*self._decided_s.get(uid, ()), _recorded_s(row))
            elif row.type == _RELEASED:
                self._evicted.clear()
                self._unrecorded.clear()
            elif row.type == _DELETED:
                self.gone_s[msgspec.json.decode(row.data, type=_Named).pod_uid] = asyncio.get_running_loop().time()
            elif row.type == _STARTED and context == "cluster":
                self.gateway_began_s.append(asyncio.get_running_loop().time())
                self._forget_nodes_of_the_gone()
            elif row.type in _ONE_SHOT_OUTCOMES:
                self._check_outcome(cause, row)

    def dropped(self, context: str, first: int) -> None:
        """Notes that the events of a context before a seq are gone."""
        self._kept.setdefault(context, []).append((first, asyncio.get_running_loop().time()))

    def left_s(self, context: str, seq: int) -> float:
        """Returns when an event left its log; infinity while it is there."""
        return next((at_s for first, at_s in self._kept.get(context, ()) if seq < first), math.inf)

    def _check_placement(self, cause: str, row: Row) -> None:
        placed = msgspec.json.decode(row.data, type=_Named)
        before = self._placed.get(placed.pod_uid)
        if before is not None and self.outcomes.get(before) not in _REFUSED:
            self._report(f"{cause} places {placed.pod_uid}, whose placement {before} was not refused")
        self._placed[placed.pod_uid] = cause
        self._decided_s[placed.pod_uid] = (_recorded_s(row),)
        self._nodes[cause] = placed.node
        self.one_shots[cause] = placed.pod_uid

    def _check_outcome(self, at: str, row: Row) -> None:
        if row.cause is None or row.cause not in self.one_shots:
            self._report(f"{at} is the outcome of {row.cause}, which is no intent")
            return
        if (first := self.outcomes.setdefault(row.cause, row.type)) and first is not row.type:
            self._report(f"{at}: {row.cause} has a second outcome, {row.type} after {first}")
        self._unrecorded.pop(self.one_shots[row.cause], None)
        if row.type == _BOUND:
            bound = msgspec.json.decode(row.data, type=_Named)
            if self._bound.get(bound.pod_uid) != bound.node:
                self._report(f"{at} says bound to {bound.node}; {bound.pod_uid} is on {self._bound.get(bound.pod_uid)}")
        elif row.type in _REFUSED and self._is_on(self.one_shots[row.cause], self._nodes.get(row.cause)):
            self._report(f"{at} says {row.type} of {row.cause}, whose pod is bound to that node")

    def _forget_nodes_of_the_gone(self) -> None:
        """Lets evictions spend no budget of a node that a gateway, ending between the records of the pod's end and of
        its eviction, has taken with it: the next one counts them for the cluster alone.
        """
        for uid in self._unrecorded.keys() & self.gone_s.keys():
            self._evicted[self._unrecorded.pop(uid)] -= 1

    def _is_on(self, uid: str, node: str | None) -> bool:
        """Reports whether the server has the pod, bound to the node. One that is gone may count as refused."""
        if node is None or self._bound.get(uid) != node:
            return False
        return any(pod["metadata"]["uid"] == uid for pod in self._api.objects["pods"].values())

    # -- the API server

    def changed(self, resource: str, key: str, before: Body | None, after: Body | None) -> None:
        """Checks a change of an object."""
        if resource == "nodes":
            self._check_overcommitted(key, before, after)
        if resource == resource_names.RESERVATIONS and after is not None:
            self.held.changed(after)
        if resource == resource_names.VOLUMES:
            self._volumes.changed(key, before, after)
        if resource == resource_names.QUOTAS and after is not None:
            uid, limit = after["metadata"]["uid"], nanos(after["spec"]["max"]["cpu"])
            self._highest_max[uid] = max(self._highest_max.get(uid, 0), limit)
        if after is not None:
            self._migrations.changed(resource, key, after)
        if resource != "pods" or after is None:
            return
        self._gangs.pod_changed(after)
        uid, node = after["metadata"]["uid"], after["spec"].get("nodeName")
        if node and (before is None or not before["spec"].get("nodeName")):
            self._check_binding(key, uid, node)

    def _check_overcommitted(self, name: str, before: Body | None, after: Body | None) -> None:
        """Checks that a node keeps its batch and mid resources: nothing in a world turns overcommitment off."""
        if before is None or after is None:
            return
        gone = before["status"]["allocatable"].keys() - after["status"]["allocatable"].keys()
        if left := [name for name in gone if name.startswith(OVERCOMMITTED)]:
            self._report(f"node {name} loses {min(left)}, which its pods request")

    def _check_binding(self, key: str, uid: str, node: str) -> None:
        if self._bound.setdefault(uid, node) != node:
            self._report(f"{key} is bound to {node} and to {self._bound[uid]}")
        if uid not in self._placed:
            self._report(f"{key} is bound, and no log places {uid}")
        elif (ended := self.outcomes.get(self._placed[uid])) in _REFUSED:
            self._report(f"{key} is bound to {node} by {self._placed[uid]}, which ended before as {ended}")
        self._check_age(key, uid)
        self._shares[uid] = shares_in(self._api.objects["pods"][key]["metadata"].get("annotations", {}))
        self._volumes.check_binding(self._api.objects["pods"][key], node)
        self._check_node(node)
        quota = self._api.objects["pods"][key]["metadata"].get("labels", {}).get(QUOTA_NAME)
        if quota:
            self._check_quota(quota)

    def _check_node(self, name: str) -> None:
        node = self._api.objects["nodes"].get(name)
        if node is None:
            return
        pods = [pod for pod in self.live_pods() if pod["spec"].get("nodeName") == name]
        allocatable = node["status"]["allocatable"]
        held = self.held.on(name)
        for kind in KINDS:
            used, kept = sum(requested(pod, kind) for pod in pods), sum(each.left[kind] for each in held)
            if used > nanos(allocatable[kind]):
                self._report(f"{name} has {allocatable[kind]} of {kind}, its pods request {used / 1e9:g}")
            elif used + kept > nanos(allocatable[kind]):
                names = ", ".join(each.name for each in held)
                self._report(
                    f"{name} has {allocatable[kind]} of {kind}, its pods request {used / 1e9:g} beside {kept / 1e9:g} "
                    f"that Reservations and waiting members hold: {names}"
                )
        if len(pods) > int(allocatable["pods"]):
            self._report(f"{name} has {len(pods)} pods")
        holders = [(pod["metadata"]["name"], self._shares_of(pod["metadata"]["uid"])) for pod in pods]
        for text in exceeded([*holders, *((each.name, each.shares) for each in held)], self._limits(name)):
            self._report(f"{name}: {text}")

    def _limits(self, node: str) -> dict[str, int]:
        topology = self._api.objects[resource_names.NODE_TOPOLOGIES].get(node)
        zones = topology["zones"] if topology is not None else []
        sizes = [nanos(each["allocatable"]) for zone in zones for each in zone["resources"] if each["name"] == "cpu"]
        return {CPU: 1, GPU: WHOLE, ZONE: min(sizes, default=0)}

    def _shares_of(self, uid: str) -> Shares:
        return self._shares.get(uid, Shares())

    def _check_quota(self, name: str) -> None:
        quota = next(
            each for each in self._api.objects[resource_names.QUOTAS].values() if each["metadata"]["name"] == name
        )
        used = sum(
            requested(pod, "cpu")
            for pod in self.live_pods()
            if pod["spec"].get("nodeName") and pod["metadata"].get("labels", {}).get(QUOTA_NAME) == name
        )
        # What was placed below a max is bound after that is lowered.
        limit = self._highest_max[quota["metadata"]["uid"]]
        if used > limit:
            self._report(f"quota {name} has a max of {limit / 1e9:g} cores, its bound pods request {used / 1e9:g}")

    def evicted(self, key: str, uid: str) -> None:
        """Checks an eviction that the server has accepted."""
        if uid not in self._evictions:
            self._report(f"{key} is evicted, and no service that may has requested it")
        self._migrations.evicted(uid)
        self._check_age(key, uid)
        self._check_budgets(key, uid)

    def _check_budgets(self, key: str, uid: str) -> None:
        """Counts an eviction. A world is shorter than the window, so only a release begins a new one."""
        node = self._api.objects["pods"][key]["spec"].get("nodeName", "")
        if node:
            self._unrecorded[uid] = node
        for scope, limit in ((node, self._budgets.node), ("cluster", self._budgets.cluster)):
            if not scope:
                continue  # a pod without a node
            self._evicted[scope] += 1
            if self._evicted[scope] > limit:
                self._report(f"{key} is eviction {self._evicted[scope]} of {scope}, which has a budget of {limit}")

    def _check_age(self, key: str, uid: str) -> None:
        """Checks that an effect is not older than its limit; a try in flight may end a little later, or after a stop.

        The age is that by the clock of the gateway, which knows no other: one that was behind when it compared, at
        most a limit ago, took the effect for so much younger. Of several requests any may be the one that is carried
        out.
        """
        now_s = asyncio.get_running_loop().time()
        ages_s: list[float] = []
        for decided_s in self._decided_s.get(uid, ()):
            stopped_s = sum(for_s for since_s, for_s in self.gateway_stops if decided_s < since_s)
            compared_s = now_s - self._oldest_effect_s - stopped_s
            behind_s = max((by_s for until_s, by_s in self.gateway_behind if until_s > compared_s), default=0.0)
            ages_s.append(now_s - decided_s - stopped_s - behind_s)
        age_s = min(ages_s, default=0.0)
        if age_s > self._oldest_effect_s:
            self._report(f"{key}: an effect that was decided {age_s:.1f} s ago")

    def decided_s(self, uid: str) -> float:
        """Returns when the newest placement or eviction request of a pod was committed; seconds of the world."""
        return max(self._decided_s.get(uid, ()), default=math.inf)

    def is_satisfied(self, gang: str) -> bool:
        """Reports whether a member of a gang has been bound."""
        return self._gangs.is_satisfied(gang)

    def live_pods(self) -> list[Body]:
        """Returns the server's pods that have not ended."""
        return [pod for pod in self._api.objects["pods"].values() if pod["status"].get("phase") not in ENDED_PHASES]


def _recorded_s(row: Row) -> float:
    """Returns when an event was recorded; by its writer's clock if that is ahead, since it is all that others know."""
    return max(asyncio.get_running_loop().time(), (row.at_us - BEGINS_US) / 1e6)
