"""Pods, workloads and jobs for tests of migration."""

from collections.abc import Iterable, Mapping
from typing import Any

from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs, read_args
from services.descheduler.state.observed_pods import ObservedPods
from shared.kube.instants import SECOND, instant_ns, instant_text
from shared.kube.meta import Metadata, OwnerReference
from shared.kube.pod import Container, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements

BEGIN_NS = instant_ns("2026-01-01T12:00:00Z")


def migration_args(**plain: Any) -> MigrationArgs:
    """Arguments as in a configuration."""
    return read_args(plain, "args")


def owner(kind: str, name: str) -> OwnerReference:
    """The reference to a controller of that name, whose uid is `uid-NAME`."""
    group = {"Job": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    return OwnerReference(api_version=group, kind=kind, name=name, uid=f"uid-{name}", controller=True)


def moved_pod(
    name: str,
    *,
    controller: OwnerReference | None = None,
    node: str = "n1",
    ready: bool = True,
    priority: int | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    created_s: int = 0,
    phase: str = "Running",
    spec: Mapping[str, Any] | None = None,
    terminating: bool = False,
) -> Pod:
    """A pod of namespace `default` with uid `uid-NAME`."""
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": "1", "memory": "1Gi"}))
    return Pod(
        metadata=Metadata(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            labels=dict(labels or {}) or None,
            annotations=dict(annotations or {}) or None,
            owner_references=() if controller is None else (controller,),
            creation_timestamp=instant_text(BEGIN_NS + created_s * SECOND),
            deletion_timestamp=instant_text(BEGIN_NS) if terminating else None,
        ),
        spec=PodSpec(
            node_name=node,
            scheduler_name="koord-scheduler",
            priority=priority,
            **({"containers": (container,)} | dict(spec or {})),
        ),
        status=PodStatus(phase=phase, conditions=(PodCondition(type="Ready", status="True" if ready else "False"),)),
    )


def job_body(
    name: str, pod: str, *, created_s: int = 0, phase: str = "", uid: str | None = None, **spec: Any
) -> dict[str, Any]:
    """A PodMigrationJob for a pod of namespace `default`; `spec` has further fields under their names in the API."""
    metadata = {
        "name": name, "uid": f"uid-{name}", "creationTimestamp": instant_text(BEGIN_NS + created_s * SECOND)
    }  # fmt: skip
    named = {"namespace": "default", "name": pod, "uid": f"uid-{pod}" if uid is None else uid}
    return {"metadata": metadata, "spec": {"podRef": named} | spec, "status": {"phase": phase} if phase else {}}


def cluster(
    pods: Iterable[Pod], *, jobs: Iterable[dict[str, Any]] = (), deployments: Mapping[str, int] | None = None
) -> ClusterFacts:
    """A cluster; each Deployment has one ReplicaSet of the same name with the suffix `-rs`."""
    facts = ClusterFacts(ObservedPods())
    for name, replicas in (deployments or {}).items():
        facts.put_workload("deployments.apps", f"default/{name}", f"uid-{name}", {"spec": {"replicas": replicas}})
        above = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": f"uid-{name}", "controller": True}
        body = {"metadata": {"ownerReferences": [above]}, "spec": {"replicas": replicas}}
        facts.put_workload("replicasets.apps", f"default/{name}-rs", f"uid-{name}-rs", body)
    for pod in pods:
        facts.pods.put(pod)
    for job in jobs:
        facts.put_job(job["metadata"]["name"], job["metadata"]["uid"], job)
    return facts
