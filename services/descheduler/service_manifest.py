"""The contexts that the descheduler reads and writes, and the intents that it may record."""

from shared.domain.config_rejection import event_right
from shared.runtime.manifest import Manifest

CONFIG_MAP = "koordinator-system/koord-descheduler-config"
"""The ConfigMap that configures the descheduler when no file does."""

COMPONENT = "koordstream/descheduler"
"""Reporter of its Kubernetes Events."""

MANIFEST = Manifest(
    name="descheduler",
    writes="descheduling",
    follows=("cluster", "metrics-*", "descheduling"),
    intents=(event_right(CONFIG_MAP),),
)
