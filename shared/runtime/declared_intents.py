"""The intents that each context may carry, by its name in a manifest.

Generated from the manifests by `python -m tools.generate`; edit those.
"""

from collections.abc import Mapping

from shared.events import Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.runtime.intent_rights import IntentRight, refusal
from shared.runtime.sharding import declared_name

DECLARED: Mapping[str, tuple[IntentRight, ...]] = {
    "audit": (
        IntentRight(
            ObjectDesired,
            resource="configmaps",
            fields=("data.checkpoint.json",),
            name="koordinator-system/koordstream-checkpoint",
        ),
    ),
    "descheduling": (
        IntentRight(
            ObjectDesired,
            resource="events",
            fields=(
                "involvedObject",
                "type",
                "reason",
                "message",
                "count",
                "firstTimestamp",
                "lastTimestamp",
                "source",
                "reportingComponent",
                "reportingInstance",
                "action",
            ),
            name="koordinator-system/koord-descheduler-config.dace68fa2aff6782",
        ),
        IntentRight(EvictionRequested, resource="pods", subresource="eviction"),
        IntentRight(EvictionRequested, resource="pods", deletes=True),
        IntentRight(
            FieldsDesired, resource="pods", fields=("metadata.annotations.scheduling.koordinator.sh/soft-eviction",)
        ),
        IntentRight(
            FieldsDesired,
            resource="podmigrationjobs.scheduling.koordinator.sh",
            subresource="status",
            fields=("status",),
        ),
        IntentRight(
            FieldsDesired,
            resource="podmigrationjobs.scheduling.koordinator.sh",
            fields=(
                "metadata.annotations.descheduler.koordinator.sh/passed-arbitration",
                "spec.podRef.uid",
                "spec.reservationOptions.reservationRef",
            ),
        ),
        IntentRight(
            ObjectDesired,
            resource="podmigrationjobs.scheduling.koordinator.sh",
            fields=("metadata.annotations", "metadata.labels", "spec"),
        ),
        IntentRight(ObjectDesired, resource="podmigrationjobs.scheduling.koordinator.sh", deletes=True),
        IntentRight(
            ObjectDesired,
            resource="reservations.scheduling.koordinator.sh",
            fields=("metadata.annotations", "metadata.labels", "spec"),
        ),
        IntentRight(ObjectDesired, resource="reservations.scheduling.koordinator.sh", deletes=True),
        IntentRight(
            FieldsDesired,
            resource="reservations.scheduling.koordinator.sh",
            fields=("metadata.labels.scheduling.koordinator.sh/reservation-order",),
        ),
        IntentRight(FieldsDesired, resource="nodes", fields=("spec.unschedulable",)),
        IntentRight(
            FieldsDesired, resource="pods", fields=("metadata.annotations.controller.kubernetes.io/pod-deletion-cost",)
        ),
        IntentRight(
            ObjectDesired,
            resource="events",
            fields=(
                "involvedObject",
                "type",
                "reason",
                "message",
                "count",
                "firstTimestamp",
                "lastTimestamp",
                "source",
                "reportingComponent",
                "reportingInstance",
                "action",
            ),
            name="*/koordstream-migration.*",
        ),
        IntentRight(ObjectDesired, resource="events", deletes=True, name="*/koordstream-migration.*"),
    ),
    "devices-*": (
        IntentRight(
            ObjectDesired,
            resource="devices.scheduling.koordinator.sh",
            fields=(
                "metadata.ownerReferences",
                "metadata.labels.node.koordinator.sh/gpu-driver-version",
                "metadata.labels.node.koordinator.sh/gpu-model",
                "metadata.labels.node.koordinator.sh/gpu-partition-policy",
                "metadata.labels.node.koordinator.sh/gpu-vendor",
                "metadata.labels.node.koordinator.sh/secondary-device-well-planned",
                "metadata.annotations.scheduling.koordinator.sh/gpu-partitions",
                "spec.devices",
            ),
        ),
        IntentRight(ObjectDesired, resource="devices.scheduling.koordinator.sh", deletes=True),
        IntentRight(
            ObjectDesired,
            resource="events",
            fields=(
                "involvedObject",
                "type",
                "reason",
                "message",
                "count",
                "firstTimestamp",
                "lastTimestamp",
                "source",
                "reportingComponent",
                "reportingInstance",
                "action",
            ),
            name="default/koordstream-device-inventory.*",
        ),
        IntentRight(ObjectDesired, resource="events", deletes=True, name="default/koordstream-device-inventory.*"),
    ),
    "metrics-*": (
        IntentRight(ObjectDesired, resource="nodemetrics.slo.koordinator.sh"),
        IntentRight(FieldsDesired, resource="nodemetrics.slo.koordinator.sh", subresource="status", fields=("status",)),
        IntentRight(ObjectDesired, resource="nodemetrics.slo.koordinator.sh", deletes=True),
    ),
    "nodes-*": (
        IntentRight(EvictionRequested, resource="pods", subresource="eviction"),
        IntentRight(
            ObjectDesired,
            resource="podmigrationjobs.scheduling.koordinator.sh",
            fields=("metadata.annotations", "spec"),
            name="interference-*",
        ),
        IntentRight(FieldsDesired, resource="nodes", fields=("metadata.labels.node.koordinator.sh/interfered",)),
    ),
    "quota": (
        IntentRight(EvictionRequested, resource="pods", subresource="eviction"),
        IntentRight(
            FieldsDesired,
            resource="elasticquotas.scheduling.sigs.k8s.io",
            fields=("metadata.annotations.quota.scheduling.koordinator.sh/*", "status.used"),
        ),
        IntentRight(
            FieldsDesired,
            resource="elasticquotas.koordinator.sh",
            fields=("metadata.annotations.quota.scheduling.koordinator.sh/*", "status.used"),
        ),
        IntentRight(
            FieldsDesired,
            resource="elasticquotaprofiles.quota.koordinator.sh",
            fields=("metadata.labels.quota.scheduling.koordinator.sh/tree-id",),
        ),
        IntentRight(
            ObjectDesired,
            resource="elasticquotas.scheduling.sigs.k8s.io",
            fields=(
                "metadata.labels",
                "metadata.annotations.quota.scheduling.koordinator.sh/*",
                "spec.min",
                "spec.max",
            ),
        ),
        IntentRight(
            ObjectDesired,
            resource="events",
            fields=(
                "involvedObject",
                "type",
                "reason",
                "message",
                "count",
                "firstTimestamp",
                "lastTimestamp",
                "source",
                "reportingComponent",
                "reportingInstance",
                "action",
            ),
            name="*/koordstream-quota.*",
        ),
        IntentRight(ObjectDesired, resource="events", deletes=True, name="*/koordstream-quota.*"),
    ),
    "scheduling": (
        IntentRight(PodPlaced, resource="pods", subresource="binding"),
        IntentRight(
            PodPlaced,
            resource="nodes",
            fields=("metadata.annotations.cambricon.com/dsmlu.lock", "metadata.annotations.hami.io/mutex.lock"),
        ),
        IntentRight(PodUnschedulable, resource="pods", subresource="status"),
        IntentRight(EvictionRequested, resource="pods", subresource="eviction"),
        IntentRight(FieldsDesired, resource="pods", subresource="status", fields=("status.nominatedNodeName",)),
        IntentRight(
            FieldsDesired,
            resource="pods",
            fields=("metadata.annotations.scheduling.koordinator.sh/reservation-allocated",),
        ),
        IntentRight(FieldsDesired, resource="pods", fields=("metadata.labels.hami.io/vgpu-node",)),
        IntentRight(
            FieldsDesired,
            resource="persistentvolumeclaims",
            fields=("metadata.annotations.volume.kubernetes.io/selected-node",),
        ),
        IntentRight(
            FieldsDesired,
            resource="persistentvolumes",
            fields=("metadata.annotations.pv.kubernetes.io/bound-by-controller", "spec.claimRef"),
        ),
        IntentRight(
            FieldsDesired,
            resource="scheduleexplanations.scheduling.koordinator.sh",
            subresource="status",
            fields=("status",),
        ),
        IntentRight(ObjectDesired, resource="scheduleexplanations.scheduling.koordinator.sh", deletes=True),
        IntentRight(
            FieldsDesired, resource="reservations.scheduling.koordinator.sh", subresource="status", fields=("status",)
        ),
        IntentRight(ObjectDesired, resource="reservations.scheduling.koordinator.sh", deletes=True),
        IntentRight(FieldsDesired, resource="podgroups.scheduling.sigs.k8s.io", fields=("status",)),
        IntentRight(
            FieldsDesired,
            resource="clusternetworktopologies.scheduling.koordinator.sh",
            subresource="status",
            fields=("status",),
            name="default",
        ),
        IntentRight(
            ObjectDesired,
            resource="events",
            fields=(
                "involvedObject",
                "type",
                "reason",
                "message",
                "count",
                "firstTimestamp",
                "lastTimestamp",
                "source",
                "reportingComponent",
                "reportingInstance",
                "action",
            ),
            name="koordinator-system/koord-scheduler-config.148e44e4cb5b17e0",
        ),
    ),
    "slo": (
        IntentRight(
            FieldsDesired,
            resource="nodes",
            subresource="status",
            fields=(
                "status.capacity.kubernetes.io/batch-*",
                "status.capacity.kubernetes.io/mid-*",
                "status.capacity.koordinator.sh/*",
                "status.capacity.huawei.com/npu-*",
                "status.allocatable.kubernetes.io/batch-*",
                "status.allocatable.kubernetes.io/mid-*",
                "status.allocatable.koordinator.sh/*",
                "status.allocatable.huawei.com/npu-*",
            ),
        ),
        IntentRight(
            FieldsDesired,
            resource="nodes",
            fields=("metadata.annotations.node.koordinator.sh/*", "metadata.labels.node.koordinator.sh/*"),
        ),
        IntentRight(ObjectDesired, resource="nodeslos.slo.koordinator.sh", fields=("spec",)),
        IntentRight(ObjectDesired, resource="nodeslos.slo.koordinator.sh", deletes=True),
        IntentRight(FieldsDesired, resource="nodemetrics.slo.koordinator.sh", fields=("spec",)),
        IntentRight(ObjectDesired, resource="nodemetrics.slo.koordinator.sh", deletes=True),
        IntentRight(
            FieldsDesired,
            resource="noderesourcetopologies.topology.node.k8s.io",
            fields=("metadata.annotations", "metadata.labels", "topologyPolicies", "zones"),
        ),
        IntentRight(
            ObjectDesired,
            resource="noderesourcetopologies.topology.node.k8s.io",
            fields=("metadata.ownerReferences", "metadata.annotations", "metadata.labels", "topologyPolicies", "zones"),
        ),
        IntentRight(ObjectDesired, resource="noderesourcetopologies.topology.node.k8s.io", deletes=True),
        IntentRight(
            FieldsDesired, resource="recommendations.analysis.koordinator.sh", subresource="status", fields=("status",)
        ),
        IntentRight(
            ObjectDesired,
            resource="events",
            fields=(
                "involvedObject",
                "type",
                "reason",
                "message",
                "count",
                "firstTimestamp",
                "lastTimestamp",
                "source",
                "reportingComponent",
                "reportingInstance",
                "action",
            ),
            name="koordinator-system/slo-controller-config.a00cb6d499b2cca7",
        ),
        IntentRight(
            ObjectDesired,
            resource="events",
            fields=(
                "involvedObject",
                "type",
                "reason",
                "message",
                "count",
                "firstTimestamp",
                "lastTimestamp",
                "source",
                "reportingComponent",
                "reportingInstance",
                "action",
            ),
            name="default/koordstream-usage-reports.*",
        ),
        IntentRight(ObjectDesired, resource="events", deletes=True, name="default/koordstream-usage-reports.*"),
    ),
}


def declared_refusal(context: str, event: Event) -> str:
    """Returns why a context may not carry an intent; empty for one that its service declares."""
    return refusal(context, DECLARED.get(declared_name(context), ()), event)
