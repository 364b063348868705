"""Objects of worlds whose pods are moved: a ReplicaSet, the descheduler's configuration, and PodMigrationJobs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cli.dev.fault_simulation.cluster_objects import CONFIG_NAMESPACE, NAMESPACE, Body, pod
from shared.domain.gang import POD_GROUP_LABEL
from shared.kube.resource_names import MIGRATION_JOBS

REPLICA_SETS = "replicasets.apps"
OF_MIGRATIONS = (MIGRATION_JOBS, REPLICA_SETS)
"""Resources that are served in worlds with migrations alone."""

WORKLOAD, SECOND_WORKLOAD = "web", "api"
JOB_TTL_S = 8
MOST_MIGRATING = 1
"""Pods of a workload that move at once."""


DEFRAGMENT, DEFRAGMENT_ALONE = "defragment", "defragment-alone"
"""Pods leave for gangs that wait as well; for these alone."""
PLUGINS: Mapping[str, Sequence[str]] = {
    "": ("RemoveDuplicates",),
    DEFRAGMENT: ("RemoveDuplicates", "Defragment"),
    DEFRAGMENT_ALONE: ("Defragment",),
}


def config_map(moves: str) -> Body:
    """Returns the ConfigMap of the descheduler: a few jobs run at once.

    Args:
        moves: of `PLUGINS`. Pods leave once for each gang that waits.
    """
    balance = [{"name": name} for name in PLUGINS[moves]]
    units = {"minWaitSeconds": 1, "admitWithinSeconds": 4, "retryAfterSeconds": 3600, "kinds": ["Gang"]}
    migration = {
        "defaultJobTTL": f"{JOB_TTL_S}s",
        "maxMigratingPerWorkload": MOST_MIGRATING,
        "maxUnavailablePerWorkload": MOST_MIGRATING + 1,
        "arbitrationArgs": {"interval": "500ms"},
        "objectLimiters": {"workload": {"duration": "1s"}},
    }
    profile = {
        "name": "koord-descheduler",
        "plugins": {
            "balance": {"enabled": balance},
            "evict": {"enabled": [{"name": "MigrationController"}]},
        },
        "pluginConfig": [
            {"name": "MigrationController", "args": migration},
            *([{"name": "Defragment", "args": units}] if "Defragment" in PLUGINS[moves] else ()),
        ],
    }
    document = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": "2s",
        "profiles": [profile],
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "koord-descheduler-config", "namespace": CONFIG_NAMESPACE},
        "data": {"koord-descheduler-config": json.dumps(document)},
    }


def replica_set(replicas: int, name: str = WORKLOAD) -> Body:
    """Returns a workload."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": replicas},
    }


def replica(name: str, owner: Body, cores: int, *, of_gang: bool) -> Body:
    """Returns a pod of the workload.

    Args:
        of_gang: it is a member of the gang that has the name of the workload.
    """
    body = pod(name, "plain", cores)
    if of_gang:
        body["metadata"]["labels"][POD_GROUP_LABEL] = WORKLOAD
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [reference]}}


def migration_job(name: str, target: Body) -> Body:
    """Returns a job that moves a pod."""
    metadata: dict[str, Any] = target["metadata"]
    reference = {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": name},
        "spec": {"podRef": reference, "mode": "ReservationFirst", "ttl": f"{JOB_TTL_S}s"},
    }
