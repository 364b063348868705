"""Interfaces of QoS plugins of other distributions.

It is registered as an entry point, so that installing its distribution beside the agent is enough:

    [project.entry-points."koordstream.node_agent.pod_policies"]
    CanaryBurst = "our_package.burst:CanaryBurst"

    [project.entry-points."koordstream.node_agent.strategies"]
    OurStrategy = "our_package.strategy:OurStrategy"

An entry point is a class that is called without arguments. Its name switches it on
(`KOORD_NODE_AGENT_QOS_EXTENSION_PLUGINS=CanaryBurst=true`) and is the key of its configuration in the ConfigMap
`koordlet-config`. Source: spec/node-agent.md 3.13, spec/api.md 4.2.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from services.node_agent.cgroup.executor import CgroupValue, WriteResult
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.usage_sample_types import UsageSnapshot
from shared.domain.slo_defaults import NodeSloSpec
from shared.kube.pod import Pod

POD_POLICIES = "koordstream.node_agent.pod_policies"
STRATEGIES = "koordstream.node_agent.strategies"

Policy = Literal["CPUBurst", "MemoryQOS"]


class StrategyInputs(NamedTuple):
    """The inputs of one cycle.

    Attributes:
        snapshot: the newest samples.
        pods: the pods of the node with their cgroups.
        slo: the NodeSLO in force, merged with the defaults.
        update: writes a cgroup file where its value differs; the original value is restored when the agent ends.
    """

    snapshot: UsageSnapshot
    pods: Sequence[PodCgroups]
    slo: NodeSloSpec
    update: Callable[[CgroupValue], WriteResult]


class Configurable(Protocol):
    """A plugin that takes configuration."""

    def configure(self, config: Any) -> None:
        """Takes the plugin's part of `qos-plugin-extra-configs`, before the first call and after each change.

        Args:
            config: decoded JSON; None where there is none.

        Raises:
            ValueError: it is invalid; the text is logged, and the plugin goes on as it was.
        """


class PodPolicyPlugin(Configurable, Protocol):
    """Grey control: settings for pods whose owners gave none."""

    def policy(self, pod: Pod, policy: Policy) -> Mapping[str, Any] | None:
        """Returns the JSON that the annotation `koordinator.sh/cpuBurst` or `koordinator.sh/memoryQOS` would have.

        It is called for each pod without that annotation, every five seconds and after each change. None: no settings.
        """


class StrategyPlugin(Configurable, Protocol):
    """A strategy that runs after those of the agent."""

    def run_cycle(self, inputs: StrategyInputs) -> None:
        """Runs after each collection cycle; it must not wait for anything."""
