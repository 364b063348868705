"""Admission: pods, quotas, nodes and the controller's ConfigMap, as they are changed and refused on their way in."""

from collections.abc import Callable, Mapping
from typing import Any

from cli.parity.domain import Domain, Rule
from cli.parity.runners.quota.webhook import answer as quota_tree
from services.gateway.parity import webhook
from services.slo_controller.parity import webhook as node_slo

_ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "mutatePod": webhook.mutate_pod,
    "validatePod": webhook.validate_pod,
    "quotaTree": quota_tree,
    "mutateNodeStatus": webhook.mutate_node_status,
    "validateNode": webhook.validate_node,
    "validateConfigMap": webhook.validate_config_map,
    "renderNodeSLO": node_slo.render_node_slo,
    "agentMergeNodeSLO": node_slo.agent_merge_node_slo,
}


def answer(op: str, given: Mapping[str, Any]) -> Any:
    """What our code says to one case."""
    return _ANSWERS[op](given)


def _gpus_in_one_list(op: str, given: Mapping[str, Any]) -> bool:
    return op == "mutatePod" and given["operation"] == "CREATE" and webhook.writes_to_an_absent_list(given)


DOMAIN = Domain(answer, (Rule("GPUs in one list alone", _gpus_in_one_list, lambda _op, _given: {"panic": True}),))
