"""The contexts that the descheduler reads and writes, and the intents that it may record."""

from services.descheduler.load_aware.pod_order import DELETION_COST
from shared.domain.config_rejection import event_right
from shared.domain.desired_kubernetes_event import event_rights
from shared.domain.move_destinations import SUBJECT as DESTINATIONS
from shared.domain.moves_for_waiting_unit import SUBJECT as UNIT_MOVES
from shared.domain.reservation import ORDER
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.drain_control import SUBJECT as DRAIN
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS
from shared.runtime.intent_rights import DELETE_PODS, EVICT, IntentRight
from shared.runtime.manifest import Manifest

CONFIG_MAP = "koordinator-system/koord-descheduler-config"
"""The ConfigMap that configures the descheduler when no file does."""

COMPONENT = "koordstream/descheduler"
"""Reporter of its Kubernetes Events."""

JOB_EVENTS = "*/koordstream-migration.*"
"""Names of the Kubernetes Events about PodMigrationJobs and their pods."""

MIGRATION_RIGHTS = (
    EVICT,
    DELETE_PODS,
    IntentRight(FieldsDesired, "pods", fields=("metadata.annotations.scheduling.koordinator.sh/soft-eviction",)),
    IntentRight(FieldsDesired, MIGRATION_JOBS, "status", ("status",)),
    IntentRight(
        FieldsDesired,
        MIGRATION_JOBS,
        fields=(
            "metadata.annotations.descheduler.koordinator.sh/passed-arbitration",
            "spec.podRef.uid",
            "spec.reservationOptions.reservationRef",
        ),
    ),
    IntentRight(ObjectDesired, MIGRATION_JOBS, fields=("metadata.annotations", "metadata.labels", "spec")),
    IntentRight(ObjectDesired, MIGRATION_JOBS, deletes=True),
    IntentRight(
        ObjectDesired,
        RESERVATIONS,
        fields=("metadata.annotations", "metadata.labels", "spec"),
    ),
    IntentRight(ObjectDesired, RESERVATIONS, deletes=True),
    IntentRight(FieldsDesired, RESERVATIONS, fields=(f"metadata.labels.{ORDER}",)),
    IntentRight(FieldsDesired, "nodes", fields=("spec.unschedulable",)),
    IntentRight(FieldsDesired, "pods", fields=(f"metadata.annotations.{DELETION_COST}",)),
    *event_rights(JOB_EVENTS),
)
"""Of the moves of pods, and of the drain of nodes."""

MANIFEST = Manifest(
    name="descheduler",
    writes="descheduling",
    follows=("cluster", "metrics-*", "descheduling"),
    requests=(DESTINATIONS, UNIT_MOVES),
    serves_leading=(DRAIN,),
    intents=(event_right(CONFIG_MAP), *MIGRATION_RIGHTS),
)
