"""The `fit-plus` cases: NodeResourcesFitPlus and ScarceResourceAvoidance over a few nodes.

Nodes and running pods are events; the scores are the fused evaluation's, and the cycle that tries the incoming pod has
to record the same. The profile has no filter, because the record scores nodes that a filter would reject.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.runners.scheduler.recorded_cluster import Cluster
from shared.kube.pod import Pod

_PLUGINS = {"fitPlus": "NodeResourcesFitPlus", "scarce": "ScarceResourceAvoidance"}


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Answers one case in the shape of its output."""
    name = _PLUGINS[op]
    cluster = Cluster((name,), {name: given["args"]})
    for raw in given["nodes"]:
        cluster.observe_node(raw)
    for pod in msgspec.convert(given.get("pods", []), list[Pod]):
        cluster.observe_pod(pod)
    with cluster.waiting(given["pod"]) as (_, evaluation, _):
        return {"scores": dict(evaluation.scores(evaluation.by_profile(cluster.profile))[name])}
