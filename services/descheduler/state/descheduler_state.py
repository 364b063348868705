"""The inputs of the descheduler: the cluster, the configuration, and its own decisions so far.

The State is composed of parts, each with a fold of its own; a part is written from the contexts that it names.
"""

from typing import ClassVar

import msgspec

from services.descheduler.configuration.configuration import Configuration
from services.descheduler.configuration.read_configuration import read_configuration
from services.descheduler.migration.migration_state import MigrationState, StoredMigration
from services.descheduler.service_manifest import CONFIG_MAP
from services.descheduler.state.detector_records import DetectorRecords
from services.descheduler.state.eviction_cases import EvictionCases, JobPhase, OpenedCase
from services.descheduler.state.measured_nodes import MeasuredNodes
from services.descheduler.state.observed_cluster import ObservedCluster, StoredCluster
from shared.domain.config_map_text import config_map_text
from shared.domain.own_desired_states import DesiredFields, OwnDesiredStates, object_key
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    DesiredStateApplied,
    DesiredStateRejected,
    EvictionFailed,
    EvictionRejected,
    EvictionSuppressed,
    InitialListCompleted,
    IntentRefused,
    MissingPermission,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.descheduling import (
    AnomaliesObserved,
    DeschedulingCycled,
    EvictionCaseClosed,
    EvictionCaseOpened,
    EvictionStepDecided,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.events.migration import MIGRATION_EVENTS
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS

CONFIG_KEY = "koord-descheduler-config"
"""Data key of CONFIG_MAP."""

FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, NodeMetricObserved, NodeMetricDeleted, ObjectObserved,
        ObjectDeleted, InitialListCompleted, PodEvicted, EvictionRejected, EvictionFailed, EvictionSuppressed,
        DesiredStateApplied, DesiredStateRejected, MissingPermission, IntentRefused,
    ),
    "metrics-*": (NodeReported, NodeReportsExpired),
    "descheduling": (
        WriterStarted, ConfigApplied, ConfigRejected, FieldsDesired, ObjectDesired, DeschedulingCycled, AnomaliesObserved,
        EvictionCaseOpened, EvictionStepDecided, EvictionCaseClosed, EvictionRequested, *MIGRATION_EVENTS,
    ),
}  # fmt: skip
"""Context -> event types that the State folds; it ignores the others."""


class DeschedulerState(OwnDesiredStates):
    """A fold over `cluster`, `metrics-*` and the descheduler's own `descheduling`.

    Attributes:
        cluster: nodes, pods and reports. measured: a cache of these, in the form that plugins read; not stored.
        migration: PodMigrationJobs, and what they need of the cluster.
        listed: the gateway has listed the whole cluster once.
        config_map: text of CONFIG_MAP; None while it does not exist, or has no text that is read.
        config_map_fault: why the one that exists has none; else empty. config_map_uid: its uid.
        config_source, config_text, config_digest: of the configuration in force; empty before the first.
        config_seq: seq in `descheduling` of its ConfigApplied.
        config_settings: settings of the process that were recorded with it.
        refused_digest: digest of the last configuration that was rejected; empty when one was applied since.
        cycle: number of the last recorded cycle. cycled_config_seq: `config_seq` at that cycle.
        detectors: `profile/plugin` -> detectors of nodes.
        cases: eviction cases, and the PodMigrationJobs by which they move pods.
    """

    SCHEMA: ClassVar[int] = 14

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[str, int] = {}
        self.cluster = ObservedCluster()
        self.measured = MeasuredNodes()
        self.migration = MigrationState(self.cluster.pods)
        self.listed = False
        self.config_map: str | None = None
        self.config_map_fault = ""
        self.config_map_uid = ""
        self.config_source = ""
        self.config_text = ""
        self.config_digest = ""
        self.config_seq = 0
        self.config_settings: dict[str, str] = {}
        self.refused_digest = ""
        self.cycle = 0
        self.cycled_config_seq = 0
        self.detectors: dict[str, DetectorRecords] = {}
        self.cases = EvictionCases()

    @property
    def configuration(self) -> Configuration | None:
        """The configuration in force; None before the first."""
        return read_configuration(self.config_text) if self.config_digest else None

    def pods_of_jobs_in_creation(self) -> frozenset[str]:
        """Returns the uids of pods whose jobs were decided, and are neither there nor rejected."""
        facts, rejected = self.migration.facts, self.migration.rejected
        found = []
        for key in self.desired_fields:
            resource, _, name = key.partition(" ")
            if resource != MIGRATION_JOBS or name in facts.jobs or name in facts.unreadable or name in rejected:
                continue
            if (body := self.desired(resource, name)) is not None:
                found.append(body["spec"]["podRef"]["uid"])
        return frozenset(found)

    def jobs_together(self) -> dict[str, dict[str, str]]:
        """See `EvictionCases.jobs_together`."""
        return self.cases.jobs_together()

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        if record.context == "cluster":
            self._apply_cluster(record)
        elif record.context == "descheduling":
            self._apply_own(record)
        else:
            self.cluster.apply_report(record.event)
        self.positions[record.context] = record.seq

    def _apply_cluster(self, record: RecordedEvent) -> None:
        self.cluster.apply(record)
        self.migration.apply_cluster(record)
        match record.event:
            case ObjectObserved(resource="configmaps", name=name, uid=uid, object=body) if name == CONFIG_MAP:
                self.config_map_uid = uid
                self.config_map, self.config_map_fault = config_map_text(CONFIG_KEY, body.get("data") or {})
            case ObjectDeleted(resource="configmaps", name=name) if name == CONFIG_MAP:
                self.config_map, self.config_map_fault = None, ""
            case ObjectObserved(resource=resource, name=name, object=body) if resource == MIGRATION_JOBS:
                self.cases.observe_job(name, body, record.at_ns)
            case ObjectDeleted(resource=resource, name=name) if resource in (MIGRATION_JOBS, RESERVATIONS):
                if resource == MIGRATION_JOBS:
                    self.cases.forget_job(name)
                self._end_desired(object_key(resource, name), record.seq)
            case PodDeleted(pod=name):
                self._end_desired(object_key("pods", name), record.seq)
            case NodeDeleted(node=name):
                self._end_desired(object_key("nodes", name), record.seq)
            case InitialListCompleted():
                self.listed = True

    def _apply_own(self, record: RecordedEvent) -> None:
        self._fold_desired(record.event)
        self.cases.apply(record)
        self.migration.apply_own(record)
        match record.event:
            case ConfigApplied(source=source, text=text, digest=digest, settings=settings):
                self.config_source, self.config_text, self.config_digest = source, text, digest
                self.config_seq, self.refused_digest, self.config_settings = record.seq, "", settings
            case DeschedulingCycled(cycle=cycle):
                self.cycle, self.cycled_config_seq = cycle, self.config_seq
            case AnomaliesObserved(of=of, node=node, prod=prod, unrelieved=unrelieved):
                self.detectors[of] = DetectorRecords(node, prod, unrelieved)
            case ConfigRejected(digest=digest):
                self.refused_digest = digest

    def encode(self) -> bytes:
        """Canonical: see `shared.fold.State`."""
        parts = {"cluster": self.cluster.stored(), "opened": self.cases.cases, "jobs": self.cases.jobs}
        parts |= {"migration": self.migration.stored()}
        return _ENCODER.encode({name: getattr(self, name) for name in _PLAIN} | parts)

    def restore(self, data: bytes) -> None:
        """Takes over a stored State."""
        stored = _DECODER.decode(data)
        for name in _PLAIN:
            setattr(self, name, getattr(stored, name))
        self._restore_deletions()
        self.cluster.restore(stored.cluster)
        self.cases.cases, self.cases.jobs = stored.opened, stored.jobs
        self.migration.restore(stored.migration)


class _Stored(msgspec.Struct):
    """The layout that `encode` writes."""

    positions: dict[str, int]
    desired_fields: dict[str, dict[str, DesiredFields]]
    cluster_seen: int
    deleted_at: dict[str, list[int]]
    listed: bool
    config_map: str | None
    config_map_fault: str
    config_map_uid: str
    config_source: str
    config_text: str
    config_digest: str
    config_seq: int
    config_settings: dict[str, str]
    refused_digest: str
    cycle: int
    cycled_config_seq: int
    detectors: dict[str, DetectorRecords]
    cluster: StoredCluster
    opened: dict[str, OpenedCase]
    jobs: dict[str, JobPhase]
    migration: StoredMigration


_PARTS = frozenset(("cluster", "opened", "jobs", "migration"))
_PLAIN = tuple(field.name for field in msgspec.structs.fields(_Stored) if field.name not in _PARTS)
# JSON, since amounts can exceed the 64 bits of integers in MessagePack.
_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder(_Stored)
