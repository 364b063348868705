"""The common part of the requests of a container runtime and of those of a proxy before it: the node's hooks and cgroups,
the values of a new pod, and the numbers of containers.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.nri.pods_of_requests import container_context, kube_qos, requested_pod
from services.node_agent.runtime_hooks.cgroup_hooks import pod_values
from services.node_agent.runtime_hooks.container_hooks import ContainerContext, Hook, HookFailed, HookResults
from services.node_agent.runtime_hooks.hook_rules import HookRules
from services.node_agent.runtime_hooks.hook_values import NO_VALUES, HookValues
from shared.errors import KoordError
from shared.kube.pod import Pod

log = logging.getLogger(__name__)

Allocations = Callable[[str], Mapping[str, str] | None]
"""From a pod's uid to its allocations as the scheduler decided them; None for a pod that is not known yet."""


class NodeCgroups(NamedTuple):
    """The node's side of hooks that set values of cgroups, all in memory but for the files of new pods.

    Attributes:
        pod: from a uid to the pod as the agent received it; None for one that is not known yet.
        rules: in force now.
        write: writes values of a new pod, by uid and Kubernetes class; reports whether they are in place.
        write_identity: writes `cpu.bvt_warp_ns` of a container that is created and not started, by uid, class and id;
            None where the runtime sets it, or this kernel has none.
        folder: from the same to the pod's cgroup, relative to a controller's root; empty before there is one.
        remove_group: removes the resctrl group of a pod that is gone, by uid.
    """

    pod: Callable[[str], Pod | None] = lambda _: None
    rules: Callable[[], HookRules] = HookRules
    write: Callable[[str, str, HookValues], bool] = lambda *_: False
    folder: Callable[[str, str], str] = lambda *_: ""
    write_identity: Callable[[], Callable[[str, str, str, int], None] | None] = lambda: None
    remove_group: Callable[[str], None] = lambda _: None


NO_CGROUPS = NodeCgroups()


class BadRequest(KoordError):
    """A request that cannot be decoded."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(f"the request of {method} cannot be decoded: {reason}")


class HookedRequests:
    """Runs the hooks of a node for requests; the NRI plugin and the hook server decode these, and build the answers.

    Attributes:
        applied, failed: number of containers by hook that changed them, or could not.
    """

    def __init__(
        self, hooks: Mapping[str, Hook], allocations: Allocations, cgroups: NodeCgroups, *, stop_at_failure: bool
    ) -> None:
        """Prepares one.

        Args:
            hooks: of containers that are created, by name.
            stop_at_failure: the policy is `Fail`.
        """
        self.applied = dict.fromkeys(hooks, 0)
        self.failed = 0
        self._hooks, self._allocations, self._cgroups = hooks, allocations, cgroups
        self._stop_at_failure = stop_at_failure

    def gauges(self) -> Iterator[Gauge]:
        """Yields the numbers of containers."""
        for name, count in self.applied.items():
            yield Gauge("koord_node_agent_hooked_containers", {"hook": name}, count)
        yield Gauge("koord_node_agent_hook_failures", {}, self.failed)

    def _set_new_pod(self, pod: Any) -> HookValues:
        """Sets the values of a new pod's cgroup, which the kubelet has made; returns them.

        Raises:
            HookFailed: a hook failed, and the policy is `Fail`.
        """
        rules, context = self._cgroups.rules(), self._context(pod)
        computed = pod_values(self._subject(pod), rules)
        failures = tuple(HookFailed(each.hook, context, each.reason) for each in computed.failures)
        self._count(HookResults(failures=failures))
        values = computed.values if rules.identities.enabled else computed.values._replace(bvt=None)
        if values != NO_VALUES and not self._cgroups.write(pod.uid, kube_qos(pod), values):
            log.warning(
                "values of a new pod's cgroup are not set; they are tried again every few seconds",
                extra={"pod": context.pod},
            )
        return values

    def _subject(self, pod: Any) -> Pod:
        return self._cgroups.pod(pod.uid) or requested_pod(pod)

    def _context(self, pod: Any) -> ContainerContext:
        return container_context(pod, self._subject(pod), self._allocations(pod.uid))

    def _count(self, results: HookResults) -> None:
        """Counts and logs the results for a pod or container.

        Raises:
            HookFailed: one failed, and the policy is `Fail`.
        """
        for name in results.applied:
            self.applied[name] += 1
        self.failed += bool(results.failures)
        for failure in results.failures:
            log.warning("a hook is not applied to a container", extra={"why": str(failure)})
        if results.failures and self._stop_at_failure:
            raise results.failures[0]
