"""The contexts that the descheduler reads and writes, and the intents that it may record."""

from shared.domain.config_rejection import event_right
from shared.domain.move_destinations import SUBJECT as DESTINATIONS
from shared.events.intents import ObjectDesired
from shared.kube.resource_names import MIGRATION_JOBS
from shared.runtime.intent_rights import IntentRight
from shared.runtime.manifest import Manifest

CONFIG_MAP = "koordinator-system/koord-descheduler-config"
"""The ConfigMap that configures the descheduler when no file does."""

COMPONENT = "koordstream/descheduler"
"""Reporter of its Kubernetes Events."""

MANIFEST = Manifest(
    name="descheduler",
    writes="descheduling",
    follows=("cluster", "metrics-*", "descheduling"),
    requests=(DESTINATIONS,),
    intents=(
        event_right(CONFIG_MAP),
        IntentRight(ObjectDesired, MIGRATION_JOBS, fields=("metadata.annotations", "spec")),
    ),
)
