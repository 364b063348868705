"""Manifest of the gateway: its context, the contexts it follows, and its bus subject."""

from shared.kube.eviction_control import SUBJECT as EVICTIONS
from shared.kube.rbac_permissions import SUBJECT
from shared.kube.short_lists import CONFIRM, SHORT_LISTS
from shared.runtime.manifest import Manifest

MANIFEST = Manifest(
    name="gateway",
    writes="cluster",
    follows=("cluster", "scheduling", "quota", "slo", "descheduling", "metrics-*", "nodes-*", "devices-*", "audit"),
    serves=(SUBJECT,),
    serves_leading=(SHORT_LISTS, CONFIRM, EVICTIONS),
)
"""A context that begins to append intents is added to `follows`."""
