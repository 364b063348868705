"""The manifest of the scheduler: its contexts, its requests, and the intents that it may record."""

from shared.domain.config_rejection import event_right
from shared.domain.move_destinations import SUBJECT as DESTINATIONS
from shared.domain.moves_for_waiting_unit import SUBJECT as UNIT_MOVES
from shared.domain.network_topology import OBJECT as TOPOLOGY
from shared.domain.quota_charge import SUBJECT as CHARGE
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.device import HAMI_NODE
from shared.kube.resource_names import CLAIMS, EXPLANATIONS, NETWORK_TOPOLOGIES, POD_GROUPS, RESERVATIONS, VOLUMES
from shared.kube.storage import BOUND_BY_CONTROLLER, SELECTED_NODE
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from shared.runtime.intent_rights import BIND, EVICT, LOCK_NODES, MARK_UNSCHEDULABLE, IntentRight
from shared.runtime.manifest import Manifest

CONFIG_MAP = "koordinator-system/koord-scheduler-config"
"""The ConfigMap that configures the scheduler when no file does."""

MANIFEST = Manifest(
    name="scheduler",
    writes="scheduling",
    follows=("cluster", "scheduling", "quota", "metrics-*"),
    serves_leading=(DESTINATIONS, UNIT_MOVES),
    requests=(CHARGE,),
    intents=(
        BIND,
        LOCK_NODES,
        MARK_UNSCHEDULABLE,
        EVICT,
        IntentRight(FieldsDesired, "pods", "status", ("status.nominatedNodeName",)),
        IntentRight(FieldsDesired, "pods", fields=(f"metadata.annotations.{RESERVATION_ALLOCATED}",)),
        IntentRight(FieldsDesired, "pods", fields=(f"metadata.labels.{HAMI_NODE}",)),
        IntentRight(FieldsDesired, CLAIMS, fields=(f"metadata.annotations.{SELECTED_NODE}",)),
        IntentRight(FieldsDesired, VOLUMES, fields=(f"metadata.annotations.{BOUND_BY_CONTROLLER}", "spec.claimRef")),
        IntentRight(FieldsDesired, EXPLANATIONS, "status", ("status",)),
        IntentRight(ObjectDesired, EXPLANATIONS, deletes=True),
        IntentRight(FieldsDesired, RESERVATIONS, "status", ("status",)),
        IntentRight(ObjectDesired, RESERVATIONS, deletes=True),
        IntentRight(FieldsDesired, POD_GROUPS, fields=("status",)),
        IntentRight(FieldsDesired, NETWORK_TOPOLOGIES, "status", ("status",), name=TOPOLOGY),
        event_right(CONFIG_MAP),
    ),
)
