"""The hook server of a node, put together from gates and settings."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from services.node_agent.hook_server.hook_answers import HookAnswers
from services.node_agent.hook_server.hook_server import HookServer
from services.node_agent.nri.node_hooks import missing_without_runtime, node_hooks
from services.node_agent.qos_manager.enforcers.hook_audit import RuntimeSide
from services.node_agent.qos_manager.qos_manager import QosManager
from services.node_agent.runtime_hooks.hook_stages import disabled_stages
from services.node_agent.settings import AgentSettings
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.runtime_hooks.registration import Registration


def hook_server(
    settings: AgentSettings, gates: Mapping[str, bool], pods: NodePodsInformer, qos_manager: QosManager
) -> HookServer | None:
    """Returns the server, with the hooks whose gates are on; None where no stage has any.

    Raises:
        BadStages: the settings disable a stage that does not exist.
    """
    hooks, allocations, cgroups = node_hooks(settings, gates, pods, qos_manager)
    answers = HookAnswers(
        hooks,
        allocations,
        cgroups,
        records=qos_manager.hook_records,
        stop_at_failure=settings.hook_failure_policy == "Fail",
        disabled=disabled_stages(settings.disabled_hook_stages),
    )
    qos_manager.runtime_side = RuntimeSide(
        start_only=partial(answers.missing, missing_without_runtime(hooks)),
        route=answers.route,
        follows_ends=not answers.stages,
    )
    if not answers.stages:
        return None
    registration = Registration(
        remote_endpoint=settings.hook_server_endpoint or settings.hook_server_socket,
        failure_policy=settings.hook_failure_policy,
        runtime_hooks=answers.stages,
    )
    return HookServer(Path(settings.hook_server_socket), Path(settings.hook_registrations), registration, answers)
