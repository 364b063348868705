"""What the gateway may do."""

from shared.kube.rbac_permissions import SUBJECT
from shared.runtime.manifest import Manifest

MANIFEST = Manifest(
    name="gateway",
    writes="cluster",
    follows=("cluster", "scheduling", "quota", "slo", "metrics-*", "nodes-*", "audit"),
    serves=(SUBJECT,),
)
"""A context that comes to append intents is added to `follows`."""
