"""Hook Resctrl: a container of a pod with the annotation `node.koordinator.sh/resctrl` starts in its pod's resctrl group.

Without it, the reconciler moves the processes there once they run. Source: spec/node-agent.md 4.9.
"""

from collections.abc import Callable, Mapping

from services.node_agent.qos_manager.strategies.resctrl import ANNOTATION
from services.node_agent.runtime_hooks.container_hooks import Adjustment, ContainerContext, Hook, HookFailed
from shared.errors import KoordError

NAME = "Resctrl"
JOINED_LATER = (
    "the agent was not connected to the runtime: its processes join their resctrl group seconds after they start"
)

MakeGroup = Callable[[str, str], str]
"""From a pod's uid and its annotation to the name of its group, which exists; a KoordError where it cannot."""


def resctrl_class(make: MakeGroup) -> Hook:
    """Returns the hook: the RDT class is the name of the pod's group.

    A runtime does not create a container with a class that has no group, so the class is given only with its group.
    """

    def hook(context: ContainerContext) -> Adjustment:
        text = annotation(context.subject.metadata.annotations)
        if not text:
            return Adjustment()
        try:
            return Adjustment(rdt_class=make(context.pod_uid, text))
        except KoordError as error:
            raise HookFailed(NAME, context, str(error)) from error

    return hook


def annotation(annotations: Mapping[str, str] | None) -> str:
    """Returns the annotation for a group of the pod's own; empty without."""
    return (annotations or {}).get(ANNOTATION, "")
