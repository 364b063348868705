"""The contexts that the SLO controller reads and writes, and the intents that it may record."""

from shared.domain.config_rejection import event_right
from shared.domain.desired_kubernetes_event import event_rights
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS, NODE_TOPOLOGIES, RECOMMENDATIONS
from shared.runtime.intent_rights import IntentRight
from shared.runtime.manifest import Manifest

CONFIG_MAP = "koordinator-system/slo-controller-config"
"""The ConfigMap that configures the controller."""

COMPONENT = "koordstream/slo-controller"
"""Reporter of its Kubernetes Events."""

REPORT_EVENTS = "default/koordstream-usage-reports.*"
"""The Kubernetes Events about nodes whose usage reports are ignored; those of cluster-wide objects are in `default`."""

_EXTENDED_RESOURCES = ("kubernetes.io/batch-*", "kubernetes.io/mid-*", "koordinator.sh/*", "huawei.com/npu-*")
_AMOUNTS = tuple(f"status.{part}.{name}" for part in ("capacity", "allocatable") for name in _EXTENDED_RESOURCES)
_METADATA = ("metadata.annotations.node.koordinator.sh/*", "metadata.labels.node.koordinator.sh/*")
_TOPOLOGY = ("metadata.annotations", "metadata.labels", "topologyPolicies", "zones")

MANIFEST = Manifest(
    name="slo-controller",
    writes="slo",
    follows=("cluster", "metrics-*", "nodes-*", "slo"),
    intents=(
        IntentRight(FieldsDesired, "nodes", "status", _AMOUNTS),
        IntentRight(FieldsDesired, "nodes", fields=_METADATA),
        IntentRight(ObjectDesired, NODE_SLOS, fields=("spec",)),
        IntentRight(ObjectDesired, NODE_SLOS, deletes=True),
        IntentRight(FieldsDesired, NODE_METRICS, fields=("spec",)),
        IntentRight(ObjectDesired, NODE_METRICS, deletes=True),
        IntentRight(FieldsDesired, NODE_TOPOLOGIES, fields=_TOPOLOGY),
        IntentRight(ObjectDesired, NODE_TOPOLOGIES, fields=("metadata.ownerReferences", *_TOPOLOGY)),
        IntentRight(ObjectDesired, NODE_TOPOLOGIES, deletes=True),
        IntentRight(FieldsDesired, RECOMMENDATIONS, "status", ("status",)),
        event_right(CONFIG_MAP),
        *event_rights(REPORT_EVENTS),
    ),
)
