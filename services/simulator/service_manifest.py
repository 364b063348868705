"""The contexts that the simulator reads and writes, and the requests that it serves."""

from shared.runtime.manifest import Manifest

SUBJECT = "koord.simulator"

CHANGES = ("create", "delete", "patch")
READS = ("get", "list")

MANIFEST = Manifest(
    name="simulator",
    writes="cluster",
    follows=("cluster", "scheduling", "quota", "slo", "descheduling", "metrics-*", "nodes-*", "devices-*", "audit"),
    serves=tuple(f"{SUBJECT}.{verb}" for verb in (*CHANGES, *READS)),
)
