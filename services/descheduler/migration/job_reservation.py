"""The Reservation that holds the place of a pod's successor before the pod is evicted.

Source: spec/descheduler.md 3.11; upstream pkg/descheduler/controllers/migration/reservation.
"""

from typing import Any

from services.descheduler.migration.pod_migration_job import PodMigrationJob
from shared.domain.reservation import ORDER
from shared.kube.instants import duration_text
from shared.kube.json_text import json_value
from shared.kube.pod import Pod
from shared.kube.system_annotations import SYSTEM_ANNOTATIONS

Json = dict[str, Any]

CREATED_BY = "app.kubernetes.io/created-by"
DESCHEDULER = "koord-descheduler"
MIGRATION_JOB = "descheduler.koordinator.sh/migration-job"
"""Annotation of a Reservation: the uid of the job for which it was created; for people, nothing reads it."""
_POD_FIELDS = frozenset({"nodeName", "localStorage"})
"""Fields of a kept pod that its template has not."""


def reservation_name(job: PodMigrationJob) -> str:
    """Returns the name of the Reservation of a job: that of its template, else the job's uid."""
    template = _given(job)
    name = (template.get("metadata") or {}).get("name")
    return name if isinstance(name, str) and name else job.uid


def reservation_body(job: PodMigrationJob, pod: Pod, now_ns: int, destination: str) -> Json:
    """Returns the object to create for a job: a place for one pod, on another node than the pod's.

    Args:
        destination: the only node where it may be; empty for any.
    """
    given = _given(job)
    metadata = given.get("metadata") or {}
    spec: Json = dict(given.get("spec") or {})
    template = spec.get("template") or pod_template(pod)
    spec["template"] = _placed(template, pod.spec.node_name, destination)
    spec["allocateOnce"] = True
    if not spec.get("ttl") and not spec.get("expires"):
        spec["ttl"] = duration_text(job.ttl_ns)
    if not spec.get("owners"):
        spec["owners"] = owners_of(pod)
    labels = {**(metadata.get("labels") or {}), CREATED_BY: DESCHEDULER, ORDER: str(now_ns // 10**6)}
    # No owner reference: Kubernetes would delete the place with its job, also while an eviction is being carried out.
    annotations = {**(metadata.get("annotations") or {}), MIGRATION_JOB: job.uid}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def job_of(body: Json) -> str:
    """Returns the uid of the job for which a Reservation was created; empty for one without a job."""
    return str(((body.get("metadata") or {}).get("annotations") or {}).get(MIGRATION_JOB, ""))


def _given(job: PodMigrationJob) -> Json:
    options = job.spec.reservation_options
    return {} if options is None else options.template or {}


def pod_template(pod: Pod) -> Json:
    """Returns the template of a pod: its metadata without allocations, and its spec as it is kept."""
    annotations = {k: v for k, v in (pod.metadata.annotations or {}).items() if k not in SYSTEM_ANNOTATIONS}
    metadata: Json = {"namespace": pod.metadata.namespace, "labels": dict(pod.metadata.labels or {})}
    if annotations:
        metadata["annotations"] = annotations
    spec: Json = json_value(pod.spec)
    return {"metadata": metadata, "spec": {name: value for name, value in spec.items() if name not in _POD_FIELDS}}


def _placed(template: Json, node: str, destination: str) -> Json:
    """Returns a template that is bound to no node, excludes the pod's own, and allows only the destination, if any."""
    spec = {name: value for name, value in (template.get("spec") or {}).items() if name != "nodeName"}
    allowed = [("NotIn", node), ("In", destination)]
    fields = [{"key": "metadata.name", "operator": how, "values": [name]} for how, name in allowed if name]
    if not fields:
        return template | {"spec": spec}
    affinity = dict(spec.get("affinity") or {})
    of_node = dict(affinity.get("nodeAffinity") or {})
    required = of_node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    of_node["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [term | {"matchFields": [*(term.get("matchFields") or ()), *fields]} for term in terms]
    }
    return template | {"spec": spec | {"affinity": affinity | {"nodeAffinity": of_node}}}


def owners_of(pod: Pod) -> list[Json]:
    """Returns the pods that may use the place: the pod itself while it waits for a node, else all of its controller."""
    metadata = pod.metadata
    scheduled = pod.condition("PodScheduled")
    if not pod.spec.node_name and scheduled is not None and scheduled.status == "False":
        named = {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        return [{"object": named}]
    owner = pod.metadata.controller
    if owner is None:
        return []
    reference: Json = json_value(owner)
    return [{"controller": reference | {"namespace": metadata.namespace}}]
