"""A cluster of nodes with pods and reports for tests of the descheduler's cycle, with the real scheduler's engine."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.descheduler.configuration.config_reload import config_drafts
from services.descheduler.framework.case_steps import next_steps
from services.descheduler.framework.close_cases import close_cases
from services.descheduler.framework.cycle import decide_cycle, plan_cycle
from services.descheduler.framework.units_that_wait import NO_ANSWERS, UnitAnswers
from services.descheduler.settings import DecisionSettings, in_force
from services.descheduler.state.descheduler_state import DeschedulerState
from services.scheduler.explain.moves_that_admit_unit import at_once
from services.scheduler.extender_server.answer_moves_for_waiting_unit import moves_for_unit
from services.scheduler.extender_server.destinations_of_moves import destinations
from services.scheduler.in_memory_scheduler import InMemoryScheduler
from shared.domain.move_destinations import DestinationsResponse
from shared.domain.moves_for_waiting_unit import MovesForUnitRequest, MovesForUnitResponse, decode_response
from shared.domain.offered_config import OfferedConfig
from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.cluster import NodeObserved, ObjectObserved, PodDeleted, PodObserved
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened, EvictionStepDecided
from shared.events.metrics import ClassReported, NodeReported, PodReported, Usage
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata, OwnerReference
from shared.kube.node import Node, NodeSpec, NodeStatus, Taint
from shared.kube.pod import (
    Affinity,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodCondition,
    PodSpec,
    PodStatus,
)
from shared.kube.pod import ResourceRequirements as Resources
from shared.kube.resource_names import BUDGETS, MIGRATION_JOBS
from shared.kube.selectors import LabelSelector

START_NS = 1_780_000_000 * SECOND
GIB = 1 << 30
WEB = {"app": "web"}
APART = Affinity(
    pod_anti_affinity=PodAffinity(
        required=(
            PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=LabelSelector(match_labels=WEB)),
        )
    )
)
CONFIG = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 10s
profiles:
  - plugins:
      balance: {enabled: [{name: LowNodeLoad}]}
    pluginConfig:
      - name: LowNodeLoad
        args:
          lowThresholds: {cpu: 40, memory: 90}
          highThresholds: {cpu: 70, memory: 95}
          anomalyCondition: {consecutiveAbnormalities: 1, consecutiveNormalities: 1}
"""


class SmallCluster:
    """Nodes of 10 cores; the descheduler's State and the scheduler fold the same events.

    Attributes:
        now_ns: the clock.
        questions: about units, of all cycles.
    """

    def __init__(self, config: str = CONFIG, settings: DecisionSettings | None = None) -> None:
        self.now_ns = START_NS
        self.state = DeschedulerState()
        self.scheduler = InMemoryScheduler()
        self._seqs: dict[str, int] = {}
        self._pods: dict[str, Pod] = {}
        self._replica_sets: dict[str, None] = {}
        self.questions: list[MovesForUnitRequest] = []
        self.append(*config_drafts(self.state, OfferedConfig("test", config), settings or DecisionSettings()))

    def node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        taints: tuple[Taint, ...] = (),
        unschedulable: bool = False,
    ) -> None:
        """Adds a node."""
        amounts = {"cpu": "10", "memory": "64Gi", "pods": "110"}
        status = NodeStatus(capacity=amounts, allocatable=amounts)
        metadata = Metadata(name=name, uid=f"uid-{name}", labels={"kubernetes.io/hostname": name, **(labels or {})})
        node = Node(metadata=metadata, spec=NodeSpec(unschedulable=unschedulable, taints=taints), status=status)
        self._observe(NodeObserved(node=name, object=node))

    def pod(
        self,
        name: str,
        on: str,
        *,
        cpu: str = "1",
        owner: str = "",
        kind: str = "ReplicaSet",
        priority: int = 5500,
        affinity: Affinity | None = None,
        status: Mapping[str, Any] | None = None,
        spec: Mapping[str, Any] | None = None,
        **metadata: Any,
    ) -> None:
        """Adds a running pod of namespace `default`, of a ReplicaSet with ten replicas, or of another kind of owner."""
        owner = owner or f"of-{name}"
        self._replica_set(owner)
        owners = (OwnerReference(api_version="apps/v1", kind=kind, name=owner, uid=f"uid-{owner}", controller=True),)
        resources = Resources(requests={"cpu": cpu, "memory": "1Gi"})
        pod = Pod(
            metadata=Metadata(
                name=name, namespace="default", uid=name, owner_references=owners if kind else (), **metadata
            ),
            spec=PodSpec(
                node_name=on,
                scheduler_name="koord-scheduler",
                priority=priority,
                affinity=affinity,
                **{"containers": (Container(name="c", resources=resources),), **(spec or {})},
            ),
            status=PodStatus(
                **{"phase": "Running", "conditions": (PodCondition(type="Ready", status="True"),), **(status or {})}
            ),
        )
        self._pods[name] = pod
        self._observe(PodObserved(pod=f"default/{name}", pod_uid=name, object=pod))

    def _replica_set(self, name: str) -> None:
        if name not in self._replica_sets:
            self._replica_sets[name] = None
            metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
            body = {"metadata": metadata, "spec": {"replicas": 10}}
            key = f"default/{name}"
            self._observe(ObjectObserved(resource="replicasets.apps", name=key, uid=f"uid-{name}", object=body))

    def ago(self, seconds: int) -> str:
        """Returns an instant before now, as objects have it."""
        return instant_text(self.now_ns - seconds * SECOND)

    def namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Adds a namespace."""
        body = {"metadata": {"name": name, "labels": dict(labels)}}
        self._observe(ObjectObserved(resource="namespaces", name=name, uid=f"uid-{name}", object=body))

    def budget(self, name: str, labels: Mapping[str, str]) -> None:
        """Adds a disruption budget of pods with labels."""
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {"matchLabels": dict(labels)}}}
        self._observe(ObjectObserved(resource=BUDGETS, name=f"default/{name}", uid=f"uid-{name}", object=body))

    def delete(self, name: str) -> None:
        """Removes a pod."""
        del self._pods[name]
        self._observe(PodDeleted(pod=f"default/{name}", pod_uid=name))

    def report(self, node: str, pods: Mapping[str, int], system: int = 0, *, peak: int | None = None) -> None:
        """A report of a node: cpu of its pods in milli-cores, of its system, and the predicted peak of its prod pods."""
        listed = tuple(PodReported(f"default/{name}", cpu, GIB) for name, cpu in sorted(pods.items()))
        event = NodeReported(
            node=node,
            at_ns=self.now_ns,
            interval_s=10,
            aggregate_s=60,
            usage=Usage(system + sum(pods.values()), GIB * len(pods)),
            system=Usage(system, 0),
            pods=(ClassReported("koord-batch", "BE", listed),),
            peak=None if peak is None else Usage(peak, None),
        )
        self._append("metrics-0", event)

    def job(self, name: str, phase: str, bound: str = "", mode: str = "ReservationFirst") -> None:
        """A PodMigrationJob with a status."""
        reference = {"podRef": {"namespace": "default", "name": bound, "uid": bound}} if bound else {}
        body = {"metadata": {"name": name}, "spec": {"mode": mode}, "status": {"phase": phase, **reference}}
        self._observe(ObjectObserved(resource=MIGRATION_JOBS, name=name, uid=name, object=body))

    def cycle(self, *, answers: bool = True) -> EvictionCaseOpened | None:
        """One cycle; returns its case.

        Args:
            answers: the scheduler responds.
        """
        configuration = self.state.configuration
        assert configuration is not None
        settings = in_force(self.state.config_settings)
        unit_answers = NO_ANSWERS
        plan = plan_cycle(self.state, configuration, settings, self.now_ns)
        while plan.questions and answers:
            self.questions += plan.questions.values()
            found_moves = {of: (question, self._unit_moves(question)) for of, question in plan.questions.items()}
            unit_answers = UnitAnswers({**unit_answers.of, **found_moves})
            plan = plan_cycle(self.state, configuration, settings, self.now_ns, unit_answers)
        response = DestinationsResponse(fault="the scheduler did not answer in time")
        if answers:
            found = destinations(self.scheduler.cache, plan.moves, self.now_ns)
            response = DestinationsResponse(nodes=dict(found.nodes), refused=dict(found.refused))
        drafts = decide_cycle(plan, response, configuration, settings)
        self.append(*drafts)
        return next((d.event for d in drafts if isinstance(d.event, EvictionCaseOpened)), None)

    def _unit_moves(self, question: MovesForUnitRequest) -> MovesForUnitResponse:
        response = at_once(moves_for_unit(self.scheduler.cache, question, self.now_ns))
        return decode_response(msgspec.json.encode(response), question)

    def advance(self) -> list[EvictionStepDecided]:
        """Takes the next steps of open cases."""
        configuration = self.state.configuration
        assert configuration is not None
        drafts = next_steps(self.state, configuration, in_force(self.state.config_settings).step_pods_per_node)
        self.append(*drafts)
        return [draft.event for draft in drafts if isinstance(draft.event, EvictionStepDecided)]

    def close(self) -> list[EvictionCaseClosed]:
        """Closes the cases that have ended."""
        drafts = close_cases(self.state, self.now_ns)
        self.append(*drafts)
        return [draft.event for draft in drafts if isinstance(draft.event, EvictionCaseClosed)]

    def wait(self, seconds: float) -> None:
        """Moves the clock."""
        self.now_ns += int(seconds * SECOND)

    def append(self, *drafts: Draft) -> None:
        """Appends to `descheduling`."""
        for draft in drafts:
            self._append("descheduling", draft.event)

    def _observe(self, event: Event) -> None:
        self._append("cluster", event)
        self.scheduler.observe((event,), self.now_ns)

    def observe_outcome(self, event: Event) -> None:
        """Appends the outcome of the newest intent to `cluster`."""
        self._append("cluster", event, Cause("descheduling", self._seqs["descheduling"]))

    def _append(self, context: str, event: Event, cause: Cause | None = None) -> None:
        seq = self._seqs[context] = self._seqs.get(context, 0) + 1
        record = RecordedEvent(context, seq, event, self.now_ns, cause)
        self.state.apply(record)
        self.record(record)

    def record(self, record: RecordedEvent) -> None:
        """Is called with each record, once it is folded."""
