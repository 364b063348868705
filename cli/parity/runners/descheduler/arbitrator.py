"""Cases of the arbitrator: the filter of pods, rounds of arbitration, and the limits of workloads."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.descheduler.migration.arbitrator import Result, arbitrate
from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs, read_args
from services.descheduler.migration.filter_chain import FilterChain, filter_for_plugins
from services.descheduler.migration.job_outcomes import FORBIDDEN, forbidden_message
from services.descheduler.migration.migration_limits import MigrationLimits
from services.descheduler.migration.pod_migration_job import PASSED_ARBITRATION, PodMigrationJob
from services.descheduler.migration.workload_limits import workload_limit
from services.descheduler.state.observed_pods import ObservedPods
from services.gateway.kube_api.decoding import ApiPod
from services.gateway.kube_api.resources import PODS
from services.gateway.kube_api.unused_field_removal import keep_fields
from shared.kube.pod import Pod

Json = dict[str, Any]

_RESOURCES = {
    "ReplicaSet": "replicasets.apps",
    "Deployment": "deployments.apps",
    "StatefulSet": "statefulsets.apps",
    "ReplicationController": "replicationcontrollers",
    "CloneSet": "clonesets.apps.kruise.io",
}


def answer(op: str, given: Mapping[str, Any]) -> Any:
    """Runs one case."""
    if op == "limits":
        return {"limits": [workload_limit(each["replicas"], each["value"]) for each in given["queries"]]}
    rules = read_args(_valid(given["args"]), "args")
    facts = facts_of(given)
    return _filtered(facts, rules, given) if op == "filter" else Rounds(facts, rules, given).run()


def _valid(args: Mapping[str, Any]) -> Json:
    """Returns arguments that pass the checks of a configuration, which these were not read from: a negative limit of the
    cluster, a node or a namespace means none, as 0 does.
    """
    limits = ("maxMigratingGlobally", "maxMigratingPerNode", "maxMigratingPerNamespace")
    return {name: max(value, 0) if name in limits else value for name, value in args.items()}


def facts_of(given: Mapping[str, Any]) -> ClusterFacts:
    """Returns the recorded cluster, as the gateway keeps its objects."""
    facts = ClusterFacts(ObservedPods())
    for body in given.get("workloads", ()):
        metadata = body["metadata"]
        facts.put_workload(
            _RESOURCES[body["kind"]], f"{metadata.get('namespace', '')}/{metadata['name']}", metadata["uid"], body
        )
    for body in given.get("pods", ()):
        found = keep_fields(PODS, msgspec.convert(body, ApiPod)).object
        assert isinstance(found, Pod)
        facts.pods.put(found)
    for body in given.get("jobs", ()):
        facts.put_job(body["metadata"]["name"], body["metadata"]["uid"], body)
    return facts


def _filtered(facts: ClusterFacts, rules: MigrationArgs, given: Mapping[str, Any]) -> Json:
    passed = {f"uid-{name}": None for name in given.get("passed", ())}
    chain = filter_for_plugins(facts, rules)
    arbitrating = FilterChain(facts, rules, MigrationLimits(facts, rules, passed, arbitrating=True))
    return {"pods": {key: _gates(chain, arbitrating, pod) for key, pod in facts.pods.by_key.items()}}


def _gates(chain: FilterChain, arbitrating: FilterChain, pod: Pod) -> Json:
    limits = chain.limits
    checks = {
        "filter": chain.reason,
        "noExistingJob": chain.existing_job,
        "scheduler": chain.scheduler,
        "nonRetryable": chain.non_retryable,
        "retryable": chain.retryable,
        "retryableArbitrating": arbitrating.retryable,
        "globally": limits.globally,
        "perNode": limits.per_node,
        "perNamespace": limits.per_namespace,
        "perWorkload": limits.per_workload,
        "expectedReplicas": chain.replicas,
    }
    return {name: not check(pod) for name, check in checks.items()}


def has_deleted_jobs(op: str, given: Mapping[str, Any]) -> bool:
    """Reports whether a job is deleted before a round."""
    return op == "arbitrate" and any(
        event["type"] == "jobDeleted" for each in given["rounds"] for event in each["events"]
    )


def with_deleted_jobs(op: str, given: Mapping[str, Any]) -> Any:
    """Predicts upstream's rounds: a waiting job that was deleted is evaluated on, until it can never pass."""
    assert op == "arbitrate"
    rules = read_args(_valid(given["args"]), "args")
    return Rounds(facts_of(given), rules, given, keeps_deleted=True).run()


class Rounds:
    """Rounds of arbitration, and the events between them."""

    def __init__(
        self, facts: ClusterFacts, rules: MigrationArgs, given: Mapping[str, Any], *, keeps_deleted: bool = False
    ) -> None:
        """Starts before the first round.

        Args:
            keeps_deleted: as upstream, a deleted job stays among those that wait.
        """
        self._facts, self._rules, self._given = facts, rules, given
        self._deleted: dict[str, PodMigrationJob] | None = {} if keeps_deleted else None
        self._waiting = dict.fromkeys(given["waiting"])
        self._passed = {f"uid-{name}": None for name in given.get("passed", ())}
        self._bodies = {body["metadata"]["name"]: body for body in given["jobs"]}

    def run(self) -> Json:
        """Runs all rounds."""
        results = []
        for each in self._given["rounds"]:
            for event in each["events"]:
                self._apply(event)
            results.append(self._round())
        return {"rounds": results}

    def _apply(self, event: Json) -> None:
        match event:
            case {"type": "jobPhase", "job": name, "phase": phase}:
                self._change(name, status=self._bodies[name].get("status", {}) | {"phase": phase})
                if phase in ("Succeeded", "Failed", "Aborted"):
                    self._passed.pop(f"uid-{name}", None)
            case {"type": "jobDeleted", "job": name}:
                job = self._facts.jobs.pop(name)
                if self._deleted is None:
                    self._waiting.pop(name, None)
                elif name in self._waiting:
                    self._deleted[name] = job
                self._passed.pop(f"uid-{name}", None)
            case {"type": "jobCreated", "job": body}:
                self._bodies[body["metadata"]["name"]] = body
                self._change(body["metadata"]["name"])
                self._waiting[body["metadata"]["name"]] = None
            case {"type": "podReady", "pod": key, "ready": ready}:
                pod = self._facts.pods.by_key[key]
                others = tuple(each for each in pod.status.conditions if each.type != "Ready")
                body = msgspec.to_builtins(pod)
                condition = {"type": "Ready", "status": "True" if ready else "False"}
                body["status"]["conditions"] = [*map(msgspec.to_builtins, others), condition]
                self._facts.pods.put(msgspec.convert(body, Pod))
            case {"type": "podDeleted", "pod": key}:
                self._facts.pods.remove(self._facts.pods.by_key[key].metadata.uid)

    def _change(self, name: str, **fields: Json) -> None:
        body = self._bodies[name] = self._bodies[name] | fields
        self._facts.put_job(name, body["metadata"]["uid"], body)

    def _round(self) -> Json:
        deleted = self._deleted or {}
        waiting = [deleted.get(name) or self._facts.jobs[name] for name in self._waiting]
        evaluated = arbitrate(self._facts, self._rules, waiting, self._passed)
        results: dict[str, Json] = {}
        for job, result, *_ in evaluated:
            if job.name in deleted and result is Result.PASSED:
                results[job.name] = {"result": "waiting"}  # there is nothing to annotate
                continue
            results[job.name] = {"result": str(result)}
            if result is Result.FAILED:
                results[job.name] |= {
                    "phase": "Failed", "reason": FORBIDDEN, "message": forbidden_message(job.spec.pod_ref.key)
                }  # fmt: skip
                if job.name not in deleted:
                    self._change(job.name, status={"phase": "Failed"})
            elif result is Result.PASSED:
                self._pass(job)
            if result is not Result.WAITING:
                del self._waiting[job.name]
        return {"order": [each.job.name for each in evaluated], "results": results}

    def _pass(self, job: PodMigrationJob) -> None:
        metadata = self._bodies[job.name]["metadata"]
        annotations = metadata.get("annotations", {}) | {PASSED_ARBITRATION: "true"}
        self._change(job.name, metadata=metadata | {"annotations": annotations})
        self._passed[job.uid] = None
