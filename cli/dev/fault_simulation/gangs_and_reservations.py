"""The objects of gangs and Reservations: PodGroups with their members, and Reservations with the pods that own them.

The pod `NAME-NUMBER` of a kind in `MEMBERS` belongs to the PodGroup NAME, that of a kind in `OWNERS` to the
Reservation NAME.
"""

from collections.abc import Collection

from cli.dev.fault_simulation.cluster_objects import NAMESPACE, QUOTAS, SCHEDULER, WITH_OWN_CPUS, Body, pod
from shared.domain.gang import MODE, POD_GROUP_LABEL
from shared.domain.reservation import PRE_ALLOCATION_REQUIRED, RESTRICTED

MEMBERS = ("member", "member-of-team-a")
"""Kinds of members of gangs: without a quota, and of a quota, which is charged for all of them or for none."""

NON_STRICT = "NonStrict"

OWNER, OWNER_WITH_CPUS = "owner", "owner-with-cpus"
OWNERS = (OWNER, OWNER_WITH_CPUS)
ONCE, WITH_CPUS = "once", "cpus"
PRE_ALLOCATES, REQUIRES, SEVERAL = "pre-allocates", "requires", "several"
"""What a Reservation may be: it ends with its first owner, holds CPUs, takes over running pods, only where there are
some, and several of them.
"""
OWNER_LABEL = "apps/reservation"
LONG_TTL_S = 3600


def pod_group(name: str, minimum: int, mode: str, waits_s: float) -> Body:
    """Returns a PodGroup whose gang is once satisfied; Strict but for the mode NON_STRICT, whose members hold their nodes
    for waits_s, whole seconds.
    """
    metadata: Body = {"name": name, "namespace": NAMESPACE}
    spec: Body = {"minMember": minimum}
    if mode == NON_STRICT:
        metadata["annotations"] = {MODE: NON_STRICT}
        spec["scheduleTimeoutSeconds"] = int(waits_s)
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def reservation(name: str, cores: int, what: Collection[str], ttl_s: float) -> Body:
    """Returns a Reservation; ttl_s of 0 is one that a world does not see expire."""
    amounts = {"cpu": str(cores), "memory": "256Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    template: Body = {"spec": {"schedulerName": SCHEDULER, "priority": 9_000, "containers": [container]}}
    metadata: Body = {"name": name}
    spec: Body = {
        "allocateOnce": ONCE in what,
        "ttl": f"{ttl_s or LONG_TTL_S:g}s",
        "owners": [{"labelSelector": {"matchLabels": {OWNER_LABEL: name}}}],
        "template": template,
    }
    if WITH_CPUS in what:
        template["metadata"] = {"labels": WITH_OWN_CPUS}
    if PRE_ALLOCATES in what:  # NAME-0 and NAME-1 have the same owners
        spec["owners"] = [{"labelSelector": {"matchLabels": {OWNER_LABEL: name.rpartition("-")[0]}}}]
        spec |= {"preAllocation": True, "allocatePolicy": RESTRICTED}
        spec["preAllocationPolicy"] = {"mode": "Default", "enableMultiple": SEVERAL in what}
        if REQUIRES in what:
            metadata["labels"] = {PRE_ALLOCATION_REQUIRED: "true"}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": metadata,
        "spec": spec,
    }


def grouped_pod(name: str, kind: str, cores: int) -> Body:
    """Returns a member of a gang, or an owner of a Reservation."""
    quota = next((each for each in QUOTAS if kind.endswith(each)), "plain")
    body, belongs_to = pod(name, quota, cores), name.rpartition("-")[0]
    body["metadata"]["labels"][OWNER_LABEL if kind in OWNERS else POD_GROUP_LABEL] = belongs_to
    if kind == OWNER_WITH_CPUS:
        body["metadata"]["labels"] |= WITH_OWN_CPUS
    return body
