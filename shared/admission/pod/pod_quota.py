"""A pod's quota at admission: it must not be a parent, and a quota tree with nodes of its own restricts the pod to
them.

Source: spec/quota.md 5.3, 5.4; spec/api.md 5.2 step 3, 5.4 group 3; upstream pkg/webhook/elasticquota/pod_check.go and
pkg/webhook/pod/mutating/multi_quota_tree_affinity.go.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from shared.admission.feature_gates import Gates
from shared.admission.pod.pod_json import Raw, key_of, labels_of
from shared.admission.rejection import AdmissionRejected
from shared.kube.elastic_quota import DEFAULT, PREEMPTIBLE, PREFIX, QUOTA_NAME, DeclaredQuota

Quotas = Mapping[str, DeclaredQuota]
_TREE = PREFIX + "tree-id"


def quota_name(pod: Raw, namespace: str, quotas: Quotas, gates: Gates) -> str:
    """Returns the quota of a pod by its label or namespace; empty without one under the gate DisableDefaultQuota."""
    if named := labels_of(pod).get(QUOTA_NAME):
        return named
    if "DisableDefaultQuota" in gates:
        return ""
    return of_namespace(namespace, quotas) or DEFAULT


def of_namespace(namespace: str, quotas: Quotas) -> str:
    """Returns the quota with the name of the namespace and in it, else the first that is bound to it; empty without one."""
    same = quotas.get(namespace)
    if same is not None and same.namespace == namespace:
        return same.name
    return next((name for name, quota in sorted(quotas.items()) if namespace in quota.namespaces), "")


def check_quota(pod: Raw, old: Raw | None, namespace: str, quotas: Quotas, gates: Gates) -> None:
    """Checks that a pod may be charged to its quota. An unknown name means the default quota, which is not checked.

    Args:
        old: the pod before an update; None at its creation.

    Raises:
        AdmissionRejected: `quotaMeta`.
    """
    if old is not None and labels_of(pod).get(PREEMPTIBLE, "") != labels_of(old).get(PREEMPTIBLE, ""):
        raise AdmissionRejected("quotaMeta", f"pod {key_of(pod)}: the label {PREEMPTIBLE} cannot be changed")
    if "SupportParentQuotaSubmitPod" in gates:
        return
    name = quota_name(pod, namespace, quotas, gates)
    if name != DEFAULT and name in quotas and quotas[name].is_parent:
        message = f"pod {key_of(pod)}: quota {name} is a parent; name one of its children in the label {QUOTA_NAME}"
        raise AdmissionRejected("quotaMeta", message)


def keep_to_tree(pod: dict[str, Any], namespace: str, quotas: Quotas, profiles: Iterable[Raw]) -> None:
    """Requires the nodes of the pod's quota tree, in place: those that the tree's ElasticQuotaProfile selects."""
    name = labels_of(pod).get(QUOTA_NAME) or of_namespace(namespace, quotas)
    tree = quotas[name].tree if name in quotas else ""
    ordered = sorted(profiles, key=lambda each: (each["metadata"].get("namespace", ""), each["metadata"]["name"]))
    profile = next((each for each in ordered if tree and labels_of(each).get(_TREE) == tree), None)
    if profile is None:
        return
    selector = (profile.get("spec") or {}).get("nodeSelector") or {}
    requirements: list[Any] = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    requirements += selector.get("matchExpressions") or ()
    if not requirements:
        return
    affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.setdefault("nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    for term in terms:
        term["matchExpressions"] = [*(term.get("matchExpressions") or ()), *requirements]
