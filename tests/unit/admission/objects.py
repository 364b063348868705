"""Objects for the admission rules, as the API server sends them."""

from typing import Any

from tests.support.pods import written_pod


def profile(name: str, marks: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A ClusterColocationProfile; `marks` are its own annotations."""
    return {"metadata": {"name": name, "annotations": marks or {}}, "spec": spec}


def pod(
    *containers: dict[str, Any], labels: dict[str, str] | None = None, namespace: str = "web", **spec: Any
) -> dict[str, Any]:
    """A pod with containers, one that asks for nothing by default."""
    made = list(containers) or [{"name": "main"}]
    return written_pod("nginx", namespace=namespace, labels=labels or {}, containers=made, **spec)


def container(
    requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, name: str = "main"
) -> dict[str, Any]:
    """A container that asks for these resources."""
    resources = {kind: amounts for kind, amounts in (("requests", requests), ("limits", limits)) if amounts is not None}
    return {"name": name, "resources": resources}


CLASSES: dict[str, dict[str, Any]] = {
    "koord-batch": {"metadata": {"name": "koord-batch"}, "value": 5000},
    "koord-prod": {"metadata": {"name": "koord-prod"}, "value": 9000, "preemptionPolicy": "PreemptLowerPriority"},
}
NAMESPACES: dict[str, dict[str, Any]] = {
    "web": {"metadata": {"name": "web", "labels": {"env": "prod"}}},
    "bare": {"metadata": {"name": "bare"}},
}
