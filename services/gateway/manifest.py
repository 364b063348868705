"""What the gateway may do."""

from shared.kube.rbac_permissions import SUBJECT
from shared.manifest import Manifest

MANIFEST = Manifest(
    name="gateway",
    writes="cluster",
    follows=("cluster", "scheduling", "quota", "slo", "metrics-*", "nodes-*", "audit"),
    answers=(SUBJECT,),
)
"""A context that comes to append intents is added to `follows`."""
