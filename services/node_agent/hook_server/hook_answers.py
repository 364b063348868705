"""Answers to the requests of a runtime proxy, by the hooks that the NRI plugin and the reconciler have.

Each is a function of the request and of what is in memory, but for the files of new pods. Source: spec/node-agent.md
4.2, 5.3.
"""

import logging
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.nri.hooked_requests import Allocations, BadRequest, HookedRequests, NodeCgroups
from services.node_agent.nri.messages import PodSandbox
from services.node_agent.qos_manager.enforcers.hook_audit import StartOnly
from services.node_agent.runtime_hooks import hook_stages
from services.node_agent.runtime_hooks.cgroup_hooks import CGROUP_HOOKS, HookedContainer, container_values
from services.node_agent.runtime_hooks.container_hooks import Adjustment, Hook, HookFailed, HookResults, run_hooks
from services.node_agent.runtime_hooks.hook_records import HookRecords, short, state_of
from services.node_agent.runtime_hooks.hook_values import HookValues
from shared.agents.actions import ContainerHooks, Route
from shared.runtime_hooks.messages import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)
from shared.runtime_hooks.stages import AFTER_START_CONTAINER

log = logging.getLogger(__name__)

MOST_CREATED = 4_096
"""Containers that are remembered by pod and name, at most; the oldest are forgotten first."""


_ID = re.compile(r"[0-9a-f]{16,64}").fullmatch


class Answered(NamedTuple):
    """The hooks that a created container got, and those that it lacks with the reasons.

    Attributes:
        attempt: the kubelet's number of the container among those of its name.
        at_ns: of the answer, nanoseconds since the epoch.
    """

    attempt: int
    at_ns: int
    applied: tuple[str, ...]
    failed: Mapping[str, str]


class HookAnswers(HookedRequests):
    """The hooks of the node for a runtime proxy.

    Attributes:
        stages: at which a hook may run, and which are answered.
    """

    def __init__(
        self,
        hooks: Mapping[str, Hook],
        allocations: Allocations,
        cgroups: NodeCgroups,
        *,
        records: HookRecords,
        stop_at_failure: bool,
        disabled: frozenset[str] = frozenset(),
    ) -> None:
        """Prepares one.

        Args:
            hooks: of containers that are created, by name.
            records: of containers, which this adds to once they have an id.
            disabled: stages at which no hook runs.
        """
        super().__init__(hooks, allocations, cgroups, stop_at_failure=stop_at_failure)
        self._created: dict[tuple[str, str], Answered] = {}
        self._records = records
        stages = {hook_stages.CREATE_CONTAINER: self._create_container}
        if hook_stages.CREATE_CONTAINER not in disabled:
            stages[AFTER_START_CONTAINER] = self._container_started
        if hooks.keys() & CGROUP_HOOKS.keys():
            stages[hook_stages.RUN_POD_SANDBOX] = self._run_pod_sandbox
            stages[hook_stages.UPDATE_CONTAINER] = self._update_container
        self._stages = {stage: answer for stage, answer in stages.items() if stage not in disabled}
        self.stages = tuple(sorted(self._stages))

    def answer(self, stage: str, data: bytes) -> bytes:
        """Returns the response to a request of one of `stages`.

        Raises:
            BadRequest: it cannot be decoded.
            HookFailed: a hook failed, and the policy is `Fail`.
        """
        request = PodSandboxHookRequest if stage == hook_stages.RUN_POD_SANDBOX else ContainerResourceHookRequest
        try:
            decoded = request.FromString(data)
        except DecodeError as error:
            raise BadRequest(stage, str(error)) from error
        found: bytes = self._stages[stage](decoded).SerializeToString()
        return found

    def missing(self, needed: StartOnly, each: PodCgroups, container: str) -> Mapping[str, str]:
        """Returns the hooks that a running container lacks of those that act at its creation, with the reasons.

        The request to create it has no id, so a container is known by its pod and name.

        Args:
            needed: returns those that it would lack if no answer of this run had been for it.
        """
        found = needed(each, container)
        answered = self._created.get((each.pod.metadata.uid, container))
        if answered is None:
            return found
        failed = {name: reason for name, reason in answered.failed.items() if name not in CGROUP_HOOKS}
        return {name: reason for name, reason in found.items() if name not in answered.applied} | failed

    def route(self, each: PodCgroups, container: str) -> Route:
        """Returns the route of a container whose values are in place: the proxy where this run has answered for it."""
        return "proxy" if (each.pod.metadata.uid, container) in self._created else ""

    def _run_pod_sandbox(self, request: Any) -> Any:
        """Sets the values of a new pod's cgroup, which the kubelet has made."""
        values = self._set_new_pod(_sandbox(request, request.labels, request.annotations, request.cgroup_parent))
        response = PodSandboxHookResponse(
            labels=dict(request.labels),
            annotations=dict(request.annotations),
            cgroup_parent=request.cgroup_parent,
        )
        if request.HasField("resources"):
            response.resources.CopyFrom(request.resources)
        _set_resources(response.resources, values._replace(cpus=None, oom_score=None, bvt=None))
        return response

    def _create_container(self, request: Any) -> Any:
        pod = _sandbox(request, request.pod_labels, request.pod_annotations, request.pod_cgroup_parent)
        context = self._context(pod)._replace(
            container=request.container_meta.name, quota_us=request.container_resources.cpu_quota
        )
        results = run_hooks(self._hooks, context, stop_at_failure=self._stop_at_failure)
        if missing := _not_carried(results.adjustment):
            reason = f"a runtime proxy cannot add {missing}; use NRI"
            results = results._replace(failures=(*results.failures, HookFailed("mounts and devices", context, reason)))
        self._count(results)
        self._remember(pod.uid, request.container_meta, results)
        response = _copy(request)
        response.container_envs.update(results.adjustment.env)
        _set_resources(response.container_resources, results.adjustment.values)
        return response

    def _remember(self, uid: str, container: Any, results: HookResults) -> None:
        failed = {one.hook: short(one.reason) for one in results.failures}
        self._created.pop((uid, container.name), None)
        self._created[uid, container.name] = Answered(container.attempt, time.time_ns(), results.applied, failed)
        if len(self._created) > MOST_CREATED:
            del self._created[next(iter(self._created))]

    def _container_started(self, request: Any) -> Any:
        """Records a container, which has its id by now.

        One that this run has not answered for, or that the reconciler has found first, is recorded by what its files
        show.
        """
        pod, container = request.pod_meta, request.container_meta
        answered = self._created.get((pod.uid, container.name))
        if (
            answered is not None
            and answered.attempt == container.attempt
            and _ID(container.id)
            and container.id not in self._records.expected
        ):
            if self._cgroups.pod(pod.uid) is None:
                self._records.provisional.add(container.id)
            self._records.put(
                ContainerHooks(
                    container.id, pod.uid, f"{pod.namespace}/{pod.name}", container.name, state_of(answered.failed),
                    answered.at_ns, route="proxy", hooks=answered.applied, failed=dict(answered.failed),
                )
            )  # fmt: skip
            self._records.flush(time.time_ns())
        return _copy(request)

    def _update_container(self, request: Any) -> Any:
        """Keeps the values of the hooks in an update of a container's resources by the kubelet.

        The quota of the request may be one that a hook has scaled, so only that of a known pod counts.
        """
        pod = _sandbox(request, request.pod_labels, request.pod_annotations, request.pod_cgroup_parent)
        container = HookedContainer(request.container_meta.name)
        response = _copy(request)
        computed = container_values(self._subject(pod), container, self._cgroups.rules(), update=True)
        _set_resources(response.container_resources, computed.values)
        return response


def _sandbox(request: Any, labels: Mapping[str, str], annotations: Mapping[str, str], parent: str) -> Any:
    """Returns the pod of a request as NRI has pods."""
    meta = request.pod_meta
    return PodSandbox(
        name=meta.name,
        uid=meta.uid,
        namespace=meta.namespace,
        labels=dict(labels),
        annotations=dict(annotations),
        linux={"cgroup_parent": parent},
    )


def _copy(request: Any) -> Any:
    """Returns the answer that changes nothing: a proxy takes over cpusets and score even where they are empty."""
    response = ContainerResourceHookResponse(
        container_annotations=dict(request.container_annotations),
        pod_cgroup_parent=request.pod_cgroup_parent,
        container_envs=dict(request.container_envs),
    )
    if request.HasField("container_resources"):
        response.container_resources.CopyFrom(request.container_resources)
    return response


def _set_resources(resources: Any, values: HookValues) -> None:
    """Sets values in resources. A limit of memory with swap on it keeps to no more than the new one of memory."""
    if values.shares is not None:
        resources.cpu_shares = values.shares
    if values.quota_us is not None:
        resources.cpu_quota = values.quota_us
    if values.memory_limit is not None:
        resources.memory_limit_in_bytes = values.memory_limit
        if resources.memory_swap_limit_in_bytes > 0:
            resources.memory_swap_limit_in_bytes = values.memory_limit
    if values.cpus is not None:
        resources.cpuset_cpus = values.cpus
    if values.bvt is not None:
        resources.unified["cpu.bvt_warp_ns"] = str(values.bvt)
    if values.oom_score is not None:
        resources.oom_score_adj = values.oom_score


def _not_carried(adjustment: Adjustment) -> str:
    """Returns the paths, and the RDT class, that an answer has no field for; empty without any."""
    mounts = [mount.destination for mount in adjustment.mounts]
    rdt = (f"RDT class {adjustment.rdt_class}",) if adjustment.rdt_class else ()
    return ", ".join((*mounts, *(device.path for device in adjustment.devices), *rdt))
