"""Names of what is written for pods that neighbours slow down: the label of nodes, and PodMigrationJobs."""

INTERFERED = "node.koordinator.sh/interfered"
"""Label of a node, `true` while a pod on it is slowed down and the answer is HINT: best-effort pods may avoid it."""

FIELDS = "interference"
"""Field group of the label."""

JOB_PREFIX = "interference-"
"""Names of PodMigrationJobs begin so; the uid of the pod follows."""

JOB_TTL = "5m"
"""After so long a job times out, as those of the descheduler do by default."""

MIGRATE, HINT = "migrate", "hint"
"""Answers that action ingest gives."""
