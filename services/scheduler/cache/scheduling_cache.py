"""What decisions read: the state's facts as arrays over nodes, the queue, and the plugins' ledgers.

An index is a function of the state and of the configuration. It follows the state by what was touched, moves every total by the
difference, and can be thrown away and built anew at any time with the same decisions.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.scheduler.cache.cluster_objects import NODE_TOPOLOGIES, Surroundings
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import Ledger, SelectiveLedger, TopologyLedger
from services.scheduler.cache.pod_index import PodBook
from services.scheduler.framework.plugin import Plugin, Profile
from services.scheduler.framework.protocols import is_kind
from services.scheduler.queue.scheduling_queue import Queue
from services.scheduler.quota.queue_gate import QuotaGate
from services.scheduler.quota.reasons import waits_for_quota
from services.scheduler.state.cluster_view import ClusterView
from services.scheduler.state.latest_usage import newest, youngest
from services.scheduler.state.node_reservation import less_reserved
from services.scheduler.state.pod_class import PodAsk
from services.scheduler.state.pod_record import Held, PodFacts
from services.scheduler.state.records import Touched
from shared.domain.deprecated_resources import node_with_todays_names


class Index:
    """The derived side of one ClusterView; there is one index a view at a time, the newest.

    Attributes:
        profiles: schedulerName -> profile.
        table: the nodes.
        book: which classes of pods run where.
        surroundings: what there is beyond nodes and pods.
        on: row -> uid -> the pod that counts there.
        gate: the pods that wait for room in their quota.
        nominated: uid -> the pod of one of the profiles that waits for room made for it.
        evicting: uid -> the pod that counts on a node while an eviction of it that we requested is under way, in no order that matters.
        queue: the pods that wait for one of the profiles.
        ledgers: plugin -> the account it asked for, if it did.
    """

    def __init__(self, view: ClusterView, profiles: Mapping[str, Profile], beside: str = "") -> None:
        """Begin to follow a view.

        Args:
            beside: another scheduler's name: its pods are never queued, although a profile of that name may judge them.
        """
        self.view = view
        self.profiles = profiles
        self.table = NodeTable(room=max(64, len(view.nodes)))
        self.book = PodBook()
        self.surroundings = Surroundings()
        self.surroundings.storage.chosen = view.chosen
        self.queue = Queue({name: profile for name, profile in profiles.items() if name != beside})
        self.gate = QuotaGate(view.quota)
        self._held: dict[str, Held] = {}
        self.on: dict[int, dict[str, Held]] = {}
        self.nominated: dict[str, PodFacts] = {}
        self.evicting: dict[str, PodFacts] = {}
        plugins = dict.fromkeys(plugin for profile in profiles.values() for plugin in profile.plugins)
        self.ledgers: dict[Plugin, Ledger | None] = {plugin: plugin.new_ledger() for plugin in plugins}
        self._ledgers = tuple(ledger for ledger in self.ledgers.values() if ledger is not None)
        self._told = tuple((each, each if isinstance(each, SelectiveLedger) else None) for each in self._ledgers)
        self._moves: list[tuple[int, PodAsk, int]] = []  # not counted in the table yet
        view.read()
        for ask in view.asks.values():
            ask.memo.clear()
        view.touched = touched = Touched()
        touched.objects.update(((resource, key), None) for resource, held in view.objects.items() for key in held)
        touched.nodes.update(dict.fromkeys(sorted(view.nodes)))
        touched.metrics.update(dict.fromkeys(sorted({*view.metrics, *view.reports})))
        touched.pods.update(dict.fromkeys(sorted(view.pods)))
        self._nodes_read: dict[str, object] = {}
        self._unsettled: set[str] = set()  # uids that the queue, the gate or `nominated` may know
        self._steps: deque[tuple[Callable[[Any], None], Any]] = deque()

    def settle(self, most: int | None = None) -> bool:
        """Bring everything up to what the state says.

        Args:
            most: how many names to look at; all when not given. A shell settles a large change in steps, so that it never
                holds its process for long.

        Returns:
            Whether all of it is done.
        """
        view, steps = self.view, self._steps
        view.read()
        touched = view.touched
        assert touched is not None, "an index notes what is touched from its start"
        noted: tuple[tuple[dict[Any, None], Callable[[Any], None]], ...] = (
            (touched.objects, self._settle_object),
            (touched.nodes, self._settle_node),
            (touched.metrics, self._settle_metric),
            (touched.pods, self._settle_pod),
        )
        for names, step in noted:
            if names:
                steps.extend((step, name) for name in names)
                names.clear()
        for _ in range(len(steps) if most is None else min(most, len(steps))):
            settle_one, name = steps.popleft()
            settle_one(name)
        if not steps:
            for uid in self.gate.changed():
                self._settle_pod(uid)
        self._count_moves()
        return not steps

    def _settle_object(self, which: tuple[str, str]) -> None:
        resource, key = which
        self.surroundings.set(resource, key, self.view.objects.get(resource, {}).get(key))
        if resource == NODE_TOPOLOGIES:
            for ledger in self._ledgers:
                if is_kind(ledger, TopologyLedger):
                    ledger.set_topology(key, self.surroundings.topologies.get(key))

    def _settle_node(self, name: str) -> None:
        facts = self.view.nodes.get(name)
        if facts is None:
            self._nodes_read.pop(name, None)
            row = self.table.set_node(name, None)
            for ledger in self._ledgers:
                ledger.set_node(row, None)
            self._release_row(name)
        elif self._nodes_read.get(name) is facts.node:
            self.table.set_changed(name, facts.changed)
        else:
            self._nodes_read[name] = facts.node
            node = less_reserved(node_with_todays_names(facts.node))
            row = self.table.set_node(name, node, facts.changed)
            for ledger in self._ledgers:
                ledger.set_node(row, node)

    def _settle_metric(self, name: str) -> None:
        reports = self.view.reports.get(name, {})
        facts = newest(self.view.metrics.get(name), reports)
        row = self.table.row(name)
        context = youngest(reports)[0] if reports else ""
        self.table.set_reported(row, context, self.view.reported[name][context] if reports else 0)
        for ledger in self._ledgers:
            if facts is None:
                ledger.set_metric(row, None, "")
            else:
                ledger.set_metric(row, facts.metric, facts.updated)
        if facts is None:
            self._release_row(name)

    def _settle_pod(self, uid: str) -> None:
        facts = self.view.pods.get(uid)
        before = self._held.get(uid)
        after = None if facts is None else facts.held()
        if before is None or before != after:
            if before is not None:
                del self._held[uid]
                self._leave(uid, before)
            if after is not None:
                self._held[uid] = after
                self._come(uid, after)
        if facts is not None and after is not None and facts.is_asked_to_go():
            self.evicting[uid] = facts
        else:
            self.evicting.pop(uid, None)
        settled = facts is not None and facts.node != "" and not facts.attempts and not facts.stayed_at
        if settled and uid not in self._unsettled:
            return  # most pods: they run, and no question about them is open
        if settled or facts is None:
            self._unsettled.discard(uid)
        else:
            self._unsettled.add(uid)
        # Nobody places a pod without a profile here: capacity would be kept for it in vain, and nothing evaluates it.
        is_ours = facts is not None and facts.ask is not None and facts.ask.scheduler in self.profiles
        if facts is not None and is_ours and facts.nominated and facts.waiting(self.view.gateway_since):
            self.nominated[uid] = facts
        else:
            self.nominated.pop(uid, None)
        stayed_at = self._stayed_at(facts) if uid in self.nominated and facts is not None else 0
        queued, stayed_at = self.gate.place(uid, facts, stayed_at)
        self.queue.put(uid, queued, self.view.gateway_since, self.view.config_seq, stayed_at)
        if facts is not None and facts.stayed_at:
            self._tell_nominated(facts)

    def _stayed_at(self, nominated: PodFacts) -> int:
        """When (`cluster` seq) the going of a pod that may make room for this one was last refused."""
        makers: Iterable[str] = self.on.get(self.table.rows.get(nominated.nominated, -1), ())
        entry = self.view.quota.pods.get(nominated.uid)
        if entry is not None and waits_for_quota(nominated.reasons):
            makers = self.view.quota.pods_of[entry.quota]
        there = (self.view.pods.get(uid) for uid in makers)  # None: gone, and not settled yet
        return max((facts.stayed_at for facts in there if facts is not None), default=0)

    def _tell_nominated(self, stayed: PodFacts) -> None:
        """Who was to have the room of a pod that stays may look for other room."""
        quotas = self.view.quota.pods
        own = quotas.get(stayed.uid)
        for uid, facts in self.nominated.items():
            is_there = facts.nominated == stayed.node
            if waits_for_quota(facts.reasons):
                is_there = own is not None and uid in quotas and quotas[uid].quota == own.quota
            if is_there:
                self.queue.put(uid, facts, self.view.gateway_since, self.view.config_seq, stayed.stayed_at)

    def _come(self, uid: str, held: Held) -> None:
        row, ask = self.table.row(held.node), held.ask
        self._moves.append((row, ask, +1))
        self.book.move(row, ask, ending=held.ending, sign=+1)
        for ledger in self._told_of(ask):
            ledger.assign(row, uid, held)
        there = self.on.get(row)
        if there is None:
            there = self.on[row] = {}
        there[uid] = held

    def _leave(self, uid: str, held: Held) -> None:
        row, ask = self.table.row(held.node), held.ask
        self._moves.append((row, ask, -1))
        self.book.move(row, ask, ending=held.ending, sign=-1)
        for ledger in self._told_of(ask):
            ledger.release(row, uid, held)
        del self.on[row][uid]
        if not self.on[row]:
            del self.on[row]
        self._release_row(held.node)

    def _told_of(self, ask: PodAsk) -> tuple[Ledger, ...]:
        """The accounts in which pods of the class count."""
        told: tuple[Ledger, ...] | None = ask.memo.get(self)
        if told is None:
            told = tuple(each for each, selective in self._told if selective is None or selective.applies_to(ask))
            ask.memo[self] = told
        return told

    def _count_moves(self) -> None:
        if self._moves:
            self.table.count(self._moves)
            self._moves.clear()

    def _release_row(self, name: str) -> None:
        self._count_moves()  # a row with pods is not released
        view = self.view
        if name not in view.nodes and name not in view.metrics and name not in view.reports:
            self.table.release(name)
