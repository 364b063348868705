"""Admission: pods, quotas, nodes and the controller's ConfigMap, as they are changed and refused on their way in."""

from collections.abc import Callable, Mapping
from typing import Any

from cli.parity.case_domain import Domain, Rule
from cli.parity.runners.quota.webhook_cases import answer as quota_tree
from cli.parity.runners.webhook import node_and_slo_config, node_slo, pods

_ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "mutatePod": pods.mutate_pod,
    "validatePod": pods.validate_pod,
    "quotaTree": quota_tree,
    "mutateNodeStatus": node_and_slo_config.mutate_node_status,
    "validateNode": node_and_slo_config.validate_node,
    "validateConfigMap": node_and_slo_config.validate_config_map,
    "renderNodeSLO": node_slo.render_node_slo,
    "agentMergeNodeSLO": node_slo.agent_merge_node_slo,
}


def answer(op: str, given: Mapping[str, Any]) -> Any:
    """Runs one case."""
    return _ANSWERS[op](given)


def _gpus_in_one_list(op: str, given: Mapping[str, Any]) -> bool:
    return op == "mutatePod" and given["operation"] == "CREATE" and pods.writes_to_an_absent_list(given)


DOMAIN = Domain(
    answer, (Rule("GPUs in requests or limits only", _gpus_in_one_list, lambda _op, _given: {"panic": True}),)
)
