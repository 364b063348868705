"""What the simulator may do, and what it can be asked."""

from shared.declared import Declared

SUBJECT = "koord.simulator"

CHANGES = ("create", "delete", "patch")
LOOKS = ("get", "list")

DECLARED = Declared(
    name="simulator",
    writes="cluster",
    follows=("cluster", "scheduling", "quota", "slo", "metrics-*", "nodes-*", "audit"),
    answers=tuple(f"{SUBJECT}.{verb}" for verb in (*CHANGES, *LOOKS)),
)
