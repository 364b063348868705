"""The `preempt` cases: one round of the scheduler, charged to the ledger, over nodes of which only the amounts matter.

A round that places the pod has an answer of the same shape as upstream's. One that does not names one node and the
victims of the whole quota, where upstream lists each node.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from cli.parity.runners.quota.recorded_ledger import RecordedLedger, pod_key
from services.quota_ledger.decide.admission import shortfall
from services.quota_ledger.decide.charge import charge
from services.scheduler.cycle.cycle import plan_cycle
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.profile import Profile
from services.scheduler.plugins.default_preemption.plugin import DefaultPreemption
from services.scheduler.plugins.elastic_quota.plugin import ElasticQuota
from services.scheduler.plugins.node_resources_fit.args import FitArgs
from services.scheduler.plugins.node_resources_fit.plugin import NodeResourcesFit
from services.scheduler.quota.charge_client import ChargeClient
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.quota_charge import decode_request, encode
from shared.events import Event, RecordedEvent
from shared.events.cluster import ObjectObserved, PodObserved
from shared.events.log import ConfigApplied, WriterStarted
from shared.events.scheduling import PodNominated, PodPlaced
from shared.kube import resource_names
from shared.runtime.service import Runtime

NEVER = "not eligible due to preemptionPolicy=Never."


def preempt(given: Mapping[str, Any]) -> dict[str, Any]:
    """Tries a pod in one cycle; returns the results of its quota and of the nodes, and its victims."""
    ledger = RecordedLedger.after(given)
    key = pod_key(given["pod"])
    ledger.take({"type": "podAdd", "pod": given["pod"]})
    cluster = _Cluster(ledger, given["pdbs"])
    filtered, events = cluster.filtered(key), cluster.cycle()
    held = ledger.state.projection.pods[key]
    tree, rules = ledger.trees[held.tree], ledger.settings.admission()
    short = shortfall(tree, held.quota, held.request, preemptible=held.preemptible, rules=rules)
    if short is None or held.charged:
        found: dict[str, Any] = {"preFilter": {"code": "Success"}, "filter": filtered}
    else:
        found = {"preFilter": {"code": "Unschedulable", "stage": short.stage, "exceed": list(short.exceeded)}}
    found["schedulable"] = any(isinstance(event, PodPlaced) and event.pod_uid == key for event in events)
    if found["schedulable"]:
        return found
    if given["pod"]["spec"].get("preemptionPolicy") == "Never":
        return found | {"eligible": False, "reason": NEVER}
    nominated = [event for event in events if isinstance(event, PodNominated) and event.pod_uid == key and event.node]
    nodes = {
        event.node: {
            "potential": True,
            "code": "Success",
            "victims": list(event.victims),
            "numPDBViolations": event.violations,
        }
        for event in nominated
    }
    return found | {"eligible": True, "nodes": nodes, "nominatedNode": nominated[0].node if nominated else ""}


class _Cluster:
    """A scheduler that follows a ledger's logs, with NodeResourcesFit as its only filter."""

    def __init__(self, ledger: RecordedLedger, budgets: Sequence[Mapping[str, Any]]) -> None:
        self._ledger = ledger
        self.view = SchedulerState()
        for record in ledger.followed:
            self._apply(record.context, record.event)
        for raw in budgets:
            name = pod_key(raw)
            self._apply("cluster", ObjectObserved(resource=resource_names.BUDGETS, name=name, uid="", object=dict(raw)))
        own = (WriterStarted(epoch=1, release=""), ConfigApplied(source="", digest="", text=ledger.settings.text()))
        for event in (*own, *ledger.recorded):
            self._apply("quota", event)
        self.view.read()
        fit = NodeResourcesFit(FitArgs())
        schedulers = {
            record.event.object.spec.scheduler_name
            for record in ledger.followed
            if isinstance(record.event, PodObserved)
        }
        profiles = {
            name: Profile(name, (fit,), (), (ElasticQuota(), DefaultPreemption())) for name in sorted(schedulers)
        }
        self._cache = CycleInputs(self.view, profiles)
        self._cache.settle()

    def filtered(self, uid: str) -> dict[str, str]:
        """Returns the status of each node for a pod."""
        cache, pod_class = self._cache, self.view.pods[uid].pod_class
        assert pod_class is not None, "the pod was observed"
        transaction = CycleTransaction(cache, self._ledger.now_ns)
        evaluation = transaction.evaluation(cache.profiles[pod_class.scheduler], pod_class)
        feasible, resolvable = set(evaluation.feasible().tolist()), set(evaluation.resolvable().tolist())
        return {
            node: "Success"
            if row in feasible
            else "Unschedulable"
            if row in resolvable
            else "UnschedulableAndUnresolvable"
            for node, row in cache.table.rows.items()
        }

    def cycle(self) -> list[Event]:
        """Decides one round as the scheduler's service does: decided, charged, room made."""
        plan = plan_cycle(self._cache, self._ledger.now_ns, 256)
        runtime = SimpleNamespace(now_ns=lambda: self._ledger.now_ns, bus=self, writer=SimpleNamespace(epoch=1))
        charge_client = ChargeClient(cast("Runtime", runtime), 1.0)
        charged = asyncio.run(charge_client.charge(plan, self._cache, dict(self.view.positions)))
        return [draft.event for draft in drafts_of(charged)]

    async def request(self, _: str, data: bytes, **__: Any) -> bytes:
        """Answers as the bus does: with what the ledger charges."""
        _drafts, [answer] = charge(self._ledger.state, [decode_request(data)], self._ledger.settings.admission())
        return encode(answer)

    def _apply(self, context: str, event: Event) -> None:
        seq = self.view.positions.get(context, 0) + 1
        self.view.apply(RecordedEvent(context, seq, event, self._ledger.now_ns))
