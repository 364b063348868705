"""NodeMetrics on a real API server."""

from datetime import UTC, datetime, timedelta
from typing import Any

from cli.dev.local_control_plane import Cluster


def report(node: str, *, cores: str, p99: str, age_s: float = 0) -> dict[str, Any]:
    """Returns a NodeMetric as koordlet writes it: 10 GiB used, `cores` on average, `p99` cores in the 99th
    percentile."""

    def usage(cpu: str) -> dict[str, Any]:
        return {"resources": {"cpu": cpu, "memory": "10Gi"}}

    updated = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": node},
        "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}},
        "status": {
            "updateTime": updated,
            "nodeMetric": {
                "nodeUsage": usage(cores),
                "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p99": usage(p99)}}],
            },
        },
    }


def put_report(cluster: Cluster, metric: dict[str, Any]) -> None:
    path = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{metric['metadata']['name']}"
    if not _exists(cluster, path):
        cluster.api.call("POST", path.rpartition("/")[0], {**metric, "status": {}})
    cluster.api.call("PATCH", f"{path}/status", {"status": metric["status"]})


def _exists(cluster: Cluster, path: str) -> bool:
    with cluster.api.session() as session:
        return session.send("GET", path)[0] == 200
