"""DefaultPreemption as a plugin of a profile; `preemption.py` selects the victims."""

from typing import ClassVar

from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.post_filter import PostFilterCycle, PostFilterPlugin
from services.scheduler.plugins.default_preemption import SPEC
from services.scheduler.plugins.default_preemption.args import PreemptionArgs
from services.scheduler.plugins.default_preemption.preemption import NodePreemption


class DefaultPreemption(PostFilterPlugin):
    """Evicts pods of lower priority on a node for a pod that fits nowhere."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: PreemptionArgs = PreemptionArgs()) -> None:  # noqa: B008 (frozen)
        self.args = args

    def new_post_filter(self, cycle: PostFilterCycle) -> NodePreemption:
        """Makes the search for victims of one cycle."""
        return NodePreemption(self.args, cycle)
