"""The contexts and subjects of device discovery, and the intents that it may record."""

from shared.agents import subjects
from shared.domain.desired_kubernetes_event import event_rights
from shared.events.intents import ObjectDesired
from shared.kube.device import PARTITIONS, REPORTED_LABELS
from shared.kube.resource_names import DEVICES
from shared.runtime.intent_rights import IntentRight
from shared.runtime.manifest import Manifest

COMPONENT = "koordstream/device-discovery"
"""Reporter of its Kubernetes Events."""

INVENTORY_EVENTS = "default/koordstream-device-inventory.*"
"""The Kubernetes Events about nodes whose inventories are ignored in part; those of cluster-wide objects are in
`default`."""

_FIELDS = (
    "metadata.ownerReferences",
    *(f"metadata.labels.{label}" for label in sorted(REPORTED_LABELS)),
    f"metadata.annotations.{PARTITIONS}",
    "spec.devices",
)

MANIFEST = Manifest(
    name="device-discovery",
    writes="devices-*",
    follows=("cluster", "devices-*"),
    subscribes=(subjects.every_subject(subjects.INVENTORY),),
    publishes=(subjects.every_subject(subjects.REFUSED),),
    intents=(
        IntentRight(ObjectDesired, DEVICES, fields=_FIELDS),
        IntentRight(ObjectDesired, DEVICES, deletes=True),
        *event_rights(INVENTORY_EVENTS),
    ),
)
