"""The pod that an action of an agent names: it must run on the agent's own node."""

from services.metrics_ingest.agent_actions.node_pods_and_actions_state import ActionIngestState, PodOnNode
from shared.agents.actions import ActionReport, BadAction


def pod_of(state: ActionIngestState, report: ActionReport, uid: str, field: str = "action.pod_uid") -> PodOnNode | None:
    """Returns the pod that an action names, None for an unknown one.

    Args:
        field: in which it names it.

    Raises:
        BadAction: it runs on another node.
    """
    pod = state.pods.get(uid)
    if pod is not None and pod.node != report.node:
        raise BadAction(report.node, field, f"{pod.pod} runs on {pod.node}")
    return pod
