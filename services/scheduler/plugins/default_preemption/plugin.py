"""DefaultPreemption as a plugin of a profile. The selection of victims is in `framework/victim_selection.py`."""

from typing import ClassVar

from services.scheduler.framework.plugin import PostFilterPlugin
from services.scheduler.framework.spec import PluginSpec
from services.scheduler.plugins.default_preemption import SPEC
from services.scheduler.plugins.default_preemption.args import PreemptionArgs


class DefaultPreemption(PostFilterPlugin):
    """Evicts pods of lower priority on a node for a pod that fits nowhere."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: PreemptionArgs = PreemptionArgs()) -> None:  # noqa: B008 (frozen)
        self.args = args

    def candidates(self, nodes: int) -> int:
        """The bound by the share and the number in the arguments."""
        return self.args.candidates(nodes)
