"""The contexts and subjects of the quota ledger, and the intents that it may record."""

from shared.domain.desired_kubernetes_event import event_rights
from shared.domain.quota_charge import SUBJECT
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.elastic_quota import PREFIX
from shared.kube.resource_names import GUIDE_QUOTAS, QUOTA_PROFILES, QUOTAS
from shared.runtime.intent_rights import EVICT, IntentRight
from shared.runtime.manifest import Manifest

COMPONENT = "koordstream/quota-ledger"
"""Reporter of its Kubernetes Events."""

OBJECT_EVENTS = "*/koordstream-quota.*"
"""The Kubernetes Events about ElasticQuotas, each in the namespace of its object."""

_NUMBERS = (f"metadata.annotations.{PREFIX}*", "status.used")

MANIFEST = Manifest(
    name="quota-ledger",
    writes="quota",
    follows=("cluster", "scheduling", "quota"),
    subscribes=(SUBJECT,),
    intents=(
        EVICT,
        IntentRight(FieldsDesired, QUOTAS, fields=_NUMBERS),
        IntentRight(FieldsDesired, GUIDE_QUOTAS, fields=_NUMBERS),
        IntentRight(FieldsDesired, QUOTA_PROFILES, fields=(f"metadata.labels.{PREFIX}tree-id",)),
        # The labels of a profile's quota are those that its author gives.
        IntentRight(
            ObjectDesired,
            QUOTAS,
            fields=("metadata.labels", f"metadata.annotations.{PREFIX}*", "spec.min", "spec.max"),
        ),
        *event_rights(OBJECT_EVENTS),
    ),
)
