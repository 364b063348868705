"""What the simulator may do, and what it can be asked."""

from shared.runtime.manifest import Manifest

SUBJECT = "koord.simulator"

CHANGES = ("create", "delete", "patch")
LOOKS = ("get", "list")

MANIFEST = Manifest(
    name="simulator",
    writes="cluster",
    follows=("cluster", "scheduling", "quota", "slo", "metrics-*", "nodes-*", "audit"),
    serves=tuple(f"{SUBJECT}.{verb}" for verb in (*CHANGES, *LOOKS)),
)
