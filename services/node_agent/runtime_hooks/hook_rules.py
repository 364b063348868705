"""The settings of a node on which the values of the runtime hooks depend."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from services.node_agent.runtime_hooks import cpu_normalization
from services.node_agent.runtime_hooks.batch_resource import BatchRule
from services.node_agent.runtime_hooks.cpu_normalization import BadRatio, Normalization
from services.node_agent.runtime_hooks.cpuset import CpuRule
from services.node_agent.runtime_hooks.group_identity import Identities
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.domain.slo_defaults import NodeSloSpec, in_force

log = logging.getLogger(__name__)


class HookRules(NamedTuple):
    """The rules of all hooks.

    Attributes:
        gates: names of the hooks that are on.
        cpus: None without a NodeResourceTopology.
        online: CPUs of the node; empty: not known.
        keep_quota: pods with CPUs of their own keep their quota.
    """

    gates: frozenset[str] = frozenset()
    identities: Identities = Identities.of(None)
    batch: BatchRule = BatchRule()
    normalization: Normalization = Normalization()
    cpus: CpuRule | None = None
    online: frozenset[int] = frozenset()
    keep_quota: bool = False


class NodeHookRules:
    """The rules under the newest messages, for all that apply hooks."""

    def __init__(
        self,
        slo: NodeSloInformer,
        pods: NodePodsInformer,
        gates: Mapping[str, bool],
        online: frozenset[int],
        *,
        keep_quota: bool = False,
    ) -> None:
        self._slo, self._pods, self._gates = slo, pods, gates
        self._rules = HookRules(
            frozenset(name for name, on in gates.items() if on), online=online, keep_quota=keep_quota
        )
        self._inputs: tuple[object, object] | None = None
        self._logged: set[str] = set()

    def in_force(self) -> HookRules:
        """Returns the rules; they are computed when a message has come since the last call."""
        inputs = (self._slo.in_force, self._pods.in_force)
        if self._inputs is None or inputs[0] is not self._inputs[0] or inputs[1] is not self._inputs[1]:
            self._inputs = inputs
            self._rules = self._computed()
        return self._rules

    def _computed(self) -> HookRules:
        spec, node_pods = in_force(self._slo.spec or NodeSloSpec()), self._pods.in_force
        node = node_pods.object if node_pods is not None else None
        topology = node_pods.topology if node_pods is not None else None
        normalization = Normalization()
        if self._gates["CPUNormalization"]:
            normalization = self._normalization((node.metadata.annotations if node else None) or {})
        rule = None
        if topology is not None:
            rule = CpuRule.of(topology, best_effort_too=self._gates["BECPUManager"])
        return self._rules._replace(
            identities=Identities.of(spec.resource_qos_strategy),
            batch=BatchRule(ratio=normalization.ratio).with_threshold(spec.resource_used_threshold_with_be),
            normalization=normalization,
            cpus=rule,
        )

    def _normalization(self, annotations: Mapping[str, str]) -> Normalization:
        """Returns the node's ratio; after an invalid annotation the last good one."""
        try:
            return self._rules.normalization.with_annotation(annotations.get(cpu_normalization.ANNOTATION))
        except BadRatio as error:
            if (text := str(error)) not in self._logged:
                self._logged.add(text)
                log.warning(text)
        return self._rules.normalization
