"""What the gateway may do."""

from shared.declared import Declared
from shared.kube.permissions import SUBJECT

DECLARED = Declared(
    name="gateway",
    writes="cluster",
    follows=("cluster", "scheduling", "quota", "slo", "metrics-*", "nodes-*", "audit"),
    answers=(SUBJECT,),
)
"""A context that comes to append intents is added to `follows`."""
