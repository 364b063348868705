"""Stages in the life of a pod at which hooks run, by upstream's names. Source: spec/node-agent.md 4.1."""

from shared.errors import KoordError
from shared.runtime_hooks.stages import AFTER_START_CONTAINER

RUN_POD_SANDBOX = "PreRunPodSandbox"
CREATE_CONTAINER = "PreCreateContainer"
UPDATE_CONTAINER = "PreUpdateContainerResources"
REMOVE_POD_SANDBOX = "PreRemoveRunPodSandbox"
_WITH_HOOKS = (RUN_POD_SANDBOX, CREATE_CONTAINER, UPDATE_CONTAINER, REMOVE_POD_SANDBOX)
WITHOUT_HOOKS = (
    "PreStartContainer",
    "PostStopContainer",
    "PostStopPodSandbox",
)
"""Stages at which no hook runs."""


class BadStages(KoordError):
    """A list of stages that is invalid."""

    def __init__(self, found: str) -> None:
        stages = ", ".join(_WITH_HOOKS)
        super().__init__(
            f"KOORD_NODE_AGENT_DISABLED_HOOK_STAGES: {found!r} is no stage; give {stages}, separated by commas"
        )


def disabled_stages(text: str) -> frozenset[str]:
    """Returns the stages of a list, without those at which no hook runs.

    Raises:
        BadStages: it names an unknown one.
    """
    found = set()
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name in {*_WITH_HOOKS, AFTER_START_CONTAINER}:
            found.add(name)
        elif name not in WITHOUT_HOOKS:
            raise BadStages(name)
    return frozenset(found)
