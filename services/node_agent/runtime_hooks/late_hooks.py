"""Hooks that act when a container is created, for a container that was created without the agent."""

from services.node_agent.runtime_hooks import resctrl_class
from services.node_agent.runtime_hooks.hook_records import START_ONLY


def late_reason(hook: str) -> str:
    """Returns why a container lacks a hook from its start: some are made up for once it runs, others never."""
    return resctrl_class.JOINED_LATER if hook == resctrl_class.NAME else START_ONLY
