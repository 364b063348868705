"""The `quotaTree` cases of the `webhook` vectors: quotas created, changed and deleted against one tree."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.admission.quota.quota_topology import Topology
from shared.admission.quota.quota_validation import PodsOf, Rules, check_create, check_delete, check_update, completed
from shared.admission.rejection import AdmissionRejected
from shared.kube.elastic_quota import PREFIX, QUOTA_NAME


def answer(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the outcome of each step; accepted ones change the tree."""
    gates = {name for name, on in given["gates"].items() if on}
    rules = Rules(
        parents_may_cycle=True,
        guarantees="ElasticQuotaGuaranteeUsage" in gates,
        keys_may_differ="ElasticQuotaEnableUpdateResourceKey" in gates,
    )
    labelled: dict[str, list[str]] = {}
    for pod in given["pods"]:
        if quota := (pod["metadata"].get("labels") or {}).get(QUOTA_NAME):
            labelled.setdefault(quota, []).append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    pods = PodsOf(labelled=labelled, namespaces=frozenset(pod["metadata"]["namespace"] for pod in given["pods"]))
    topology = Topology()
    return {"steps": [_step(topology, step, pods, rules) for step in given["steps"]]}


def _step(topology: Topology, step: Mapping[str, Any], pods: PodsOf, rules: Rules) -> dict[str, Any]:
    raw, found = step["quota"], {}
    try:
        match step["operation"]:
            case "DELETE":
                check_delete(topology, raw["metadata"]["name"], pods)
                topology.drop(raw["metadata"]["name"])
            case "UPDATE":
                topology.put(check_update(topology, step["oldQuota"], raw, pods, rules), raw)
            case _:
                try:
                    raw = completed(topology, raw)
                except AdmissionRejected as error:
                    return {"mutateError": error.code}
                found["mutated"] = _mutated(raw["metadata"])
                topology.put(check_create(topology, raw, rules), raw)
    except AdmissionRejected as error:
        return {**found, "allowed": False, "code": error.code}
    return {**found, "allowed": True}


def _mutated(metadata: Mapping[str, Any]) -> dict[str, Any]:
    annotations = dict(metadata["annotations"])
    annotations[PREFIX + "shared-weight"] = msgspec.json.decode(annotations[PREFIX + "shared-weight"])
    return {"labels": metadata["labels"], "annotations": annotations}
