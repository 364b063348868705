"""Names of API resources that more than one service reads or writes, as in events: plural and group.

Source: spec/api.md 1.1; `kubectl api-resources`.
"""

KUBERNETES_EVENTS = "events"
NODE_METRICS = "nodemetrics.slo.koordinator.sh"
NODE_SLOS = "nodeslos.slo.koordinator.sh"
NODE_TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"
DEVICES = "devices.scheduling.koordinator.sh"
RESERVATIONS = "reservations.scheduling.koordinator.sh"
MIGRATION_JOBS = "podmigrationjobs.scheduling.koordinator.sh"
NETWORK_TOPOLOGIES = "clusternetworktopologies.scheduling.koordinator.sh"
EXPLANATIONS = "scheduleexplanations.scheduling.koordinator.sh"
RECOMMENDATIONS = "recommendations.analysis.koordinator.sh"
PROFILES = "clustercolocationprofiles.config.koordinator.sh"
POD_GROUPS = "podgroups.scheduling.sigs.k8s.io"
QUOTAS = "elasticquotas.scheduling.sigs.k8s.io"
GUIDE_QUOTAS = "elasticquotas.koordinator.sh"
"""Elastic quotas in the group of the published guides."""
QUOTA_PROFILES = "elasticquotaprofiles.quota.koordinator.sh"

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"

OF_OPENKRUISE = ("clonesets.apps.kruise.io", "statefulsets.apps.kruise.io")
"""Workloads of OpenKruise, which most clusters do not have."""

WORKLOADS = (
    "replicasets.apps",
    "deployments.apps",
    "statefulsets.apps",
    "replicationcontrollers",
    *OF_OPENKRUISE,
)
"""Workloads whose number of replicas is read."""

CORDON = "cordon"
"""Field group of a node: that it takes no new pods. Written once, since an operator may end it."""
