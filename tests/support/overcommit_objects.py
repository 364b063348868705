"""Objects of overcommitment on a real API server: paths, and pods with batch resources."""

from typing import Any

from tests.support.pods import written_pod

SLO = "/apis/slo.koordinator.sh/v1alpha1"

CONFIG_MAPS = "/api/v1/namespaces/koordinator-system/configmaps"

BATCH_CPU = "kubernetes.io/batch-cpu"


def batch_pod(name: str) -> dict[str, Any]:
    amounts = {BATCH_CPU: "1000", "kubernetes.io/batch-memory": "1Gi"}
    labels = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"}
    return written_pod(name, labels=labels, requests=amounts, limits=amounts, schedulerName="koord-scheduler")
