"""Answers to the requests of a container runtime: each a function of the request and of what is in memory."""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.nri import messages
from services.node_agent.nri.hooked_requests import NO_CGROUPS, Allocations, BadRequest, HookedRequests, NodeCgroups
from services.node_agent.nri.pods_of_requests import (
    adjustment_message,
    has_adjustment,
    has_values,
    kube_qos,
    resources_message,
)
from services.node_agent.runtime_hooks import hook_stages, resctrl_class
from services.node_agent.runtime_hooks.cgroup_hooks import (
    CGROUP_HOOKS,
    HookedContainer,
    container_values,
    without_identity,
)
from services.node_agent.runtime_hooks.container_hooks import (
    BindMount,
    Hook,
    run_hooks,
)
from services.node_agent.runtime_hooks.hook_records import Expected, HookRecords, short, state_of
from services.node_agent.runtime_hooks.hook_values import NO_VALUES, HookValues
from services.node_agent.runtime_hooks.late_hooks import late_reason
from shared.agents.actions import ContainerHooks
from shared.errors import KoordError

log = logging.getLogger(__name__)


class UnknownMethod(KoordError):
    """A method that the plugin does not serve."""

    def __init__(self, service: str, method: str) -> None:
        super().__init__(f"{service}/{method} is not served by this plugin")


class NriPlugin(HookedRequests):
    """The agent as the runtime sees it.

    Attributes:
        runtime: name and version of the runtime that configured it last.
        repaired: number of containers that had started without the values of their hooks.
    """

    def __init__(
        self,
        hooks: Mapping[str, Hook],
        allocations: Allocations,
        cgroups: NodeCgroups = NO_CGROUPS,
        *,
        records: HookRecords,
        stop_at_failure: bool,
        disabled: frozenset[str] = frozenset(),
    ) -> None:
        """Prepares one.

        Args:
            hooks: of containers that are created, by name.
            records: of containers, which this plugin adds to.
            disabled: stages at which no hook runs.
        """
        super().__init__(hooks, allocations, cgroups, stop_at_failure=stop_at_failure)
        self.runtime = ""
        self.repaired = 0
        self._disabled, self._records = disabled, records
        self._sandbox_of: dict[str, str] = {}
        """Uid of a pod that started while the plugin was connected -> id of its newest sandbox."""
        self._sandboxes: dict[str, Any] = {}
        """Pods of a synchronization by the id of their sandbox, and its updates: it may come in parts."""
        self._updates: list[Any] = []
        self._methods: Mapping[str, tuple[Any, Callable[[Any], Any]]] = {
            "Configure": (messages.ConfigureRequest, self._configure),
            "Synchronize": (messages.SynchronizeRequest, self._synchronize),
            "RunPodSandbox": (messages.RunPodSandboxRequest, self._run_pod_sandbox),
            "RemovePodSandbox": (messages.RemovePodSandboxRequest, self._remove_pod_sandbox),
            "StateChange": (messages.StateChangeEvent, self._state_change),
            "CreateContainer": (messages.CreateContainerRequest, self._create_container),
            "UpdateContainer": (messages.UpdateContainerRequest, self._update_container),
        }

    @property
    def events(self) -> int:
        """The mask of the events at which a hook may run."""
        stages = {hook_stages.CREATE_CONTAINER: messages.CREATE_CONTAINER_EVENT}
        if resctrl_class.NAME in self._hooks:
            stages[hook_stages.RUN_POD_SANDBOX] = messages.RUN_POD_SANDBOX_EVENT
            stages[hook_stages.REMOVE_POD_SANDBOX] = messages.REMOVE_POD_SANDBOX_EVENT
        if self._hooks.keys() & CGROUP_HOOKS.keys():
            stages[hook_stages.RUN_POD_SANDBOX] = messages.RUN_POD_SANDBOX_EVENT
            stages[hook_stages.UPDATE_CONTAINER] = messages.UPDATE_CONTAINER_EVENT
            if self._cgroups.write_identity() is not None:
                stages[hook_stages.CREATE_CONTAINER] |= messages.START_CONTAINER_EVENT
        return sum(event for stage, event in stages.items() if stage not in self._disabled)

    def answer(self, service: str, method: str, payload: bytes) -> bytes:
        """Returns the response to a request.

        Raises:
            UnknownMethod, BadRequest: nothing of ours.
            HookFailed: the policy is `Fail`: the runtime does not create the container.
        """
        if service != messages.PLUGIN or method not in self._methods:
            raise UnknownMethod(service, method)
        request, answer = self._methods[method]
        try:
            decoded = request.FromString(payload)
        except DecodeError as error:
            raise BadRequest(method, str(error)) from error
        found: bytes = answer(decoded).SerializeToString()
        return found

    def _configure(self, request: Any) -> Any:
        self.runtime = f"{request.runtime_name} {request.runtime_version}".strip()
        return messages.ConfigureResponse(events=self.events)

    def _synchronize(self, request: Any) -> Any:
        """Repairs containers that run without the values of their hooks; the answer to the last part has them all."""
        self._sandboxes |= {pod.id: pod for pod in request.pods}
        if hook_stages.CREATE_CONTAINER not in self._disabled:
            self._updates += filter(None, map(self._repair, request.containers))
        if request.more:
            return messages.SynchronizeResponse(more=True)
        updates = self._updates
        self._sandboxes, self._updates = {}, []
        self.repaired += len(updates)
        return messages.SynchronizeResponse(update=updates)

    def _repair(self, container: Any) -> Any | None:
        """Returns the update of a container that exists already; None where nothing is to be changed.

        Its quota may be one that a hook has scaled, so only that of a known pod counts.
        """
        pod = self._sandboxes.get(container.pod_sandbox_id)
        if pod is None:
            return None
        values = self._values_of(pod, HookedContainer(container.name))
        same = has_values(container.linux.resources, values)
        unfinished = self._records.unfinished(container.id)
        if container.id not in self._records or container.id in self._records.expected or unfinished:
            self._record_found(pod, container, same=same and not unfinished)
        if same:
            return None
        return _update(container, values, container.linux.resources)

    def _record_found(self, pod: Any, container: Any, *, same: bool) -> None:
        """Records a container that was created without this run of the agent.

        Hooks of devices act only when a container is created: it has what they add, or it never will.

        Args:
            same: it has the values that an update can set.
        """
        rules = self._cgroups.rules()
        computed = container_values(self._subject(pod), HookedContainer(container.name), rules)
        if not rules.identities.enabled:
            computed = without_identity(computed)
        failed = {one.hook: short(one.reason) for one in computed.failures}
        hooks, context = list(computed.hooks), self._context(pod)._replace(container=container.name)
        for name in sorted(self._hooks.keys() - CGROUP_HOOKS.keys()):
            results = run_hooks({name: self._hooks[name]}, context)
            if results.failures or (results.applied and not has_adjustment(container, results.adjustment)):
                failed[name] = late_reason(name)
            else:
                hooks += results.applied
        record = self._record(pod, container, hooks, failed)
        before = self._records.expected.get(container.id)
        if before is not None:  # the reconciler has seen it first
            record = replace(record, route=before.record.route)
            self._records.expected[container.id] = before._replace(record=record, started_ns=container.started_at)
            return
        if self._cgroups.pod(pod.uid) is None:
            self._records.provisional.add(container.id)
        if same:
            self._records.put(record)
            return
        folder = partial(self._cgroups.folder, pod.uid, kube_qos(pod))
        expected = Expected(replace(record, route="nri"), computed.values, folder, container.started_at)
        self._records.expect(expected)

    def _record(self, pod: Any, container: Any, hooks: Sequence[str], failed: Mapping[str, str]) -> ContainerHooks:
        return ContainerHooks(
            container.id,
            pod.uid,
            f"{pod.namespace}/{pod.name}",
            container.name,
            state_of(failed),
            time.time_ns(),
            hooks=tuple(sorted(hooks)),
            failed=dict(failed),
        )

    def _state_change(self, request: Any) -> Any:
        if request.event == messages.RUN_POD_SANDBOX:
            return self._run_pod_sandbox(request)
        if request.event == messages.REMOVE_POD_SANDBOX:
            return self._remove_pod_sandbox(request)
        if request.event == messages.START_CONTAINER:
            self._write_identity(request.pod, request.container)
        return messages.Empty()

    def _write_identity(self, pod: Any, container: Any) -> None:
        """Sets the identity of a container whose cgroup is there and whose program has not begun.

        A runtime has no field for it in cgroup v1.
        """
        rules, write = self._cgroups.rules(), self._cgroups.write_identity()
        if write is None or not rules.identities.enabled:
            return
        values = container_values(self._subject(pod), HookedContainer(container.name), rules).values
        if values.bvt is not None:
            write(pod.uid, kube_qos(pod), container.id, values.bvt)

    def _run_pod_sandbox(self, request: Any) -> Any:
        """Sets the values of a new pod's cgroup, which the kubelet has made, and makes its resctrl group."""
        if self._hooks.keys() & CGROUP_HOOKS.keys():
            self._set_new_pod(request.pod)
        if (hook := self._hooks.get(resctrl_class.NAME)) is not None:
            results = run_hooks({resctrl_class.NAME: hook}, self._context(request.pod))
            if results.applied:
                self._sandbox_of[request.pod.uid] = request.pod.id
            self._count(results._replace(applied=()))
        return messages.Empty()

    def _remove_pod_sandbox(self, request: Any) -> Any:
        """Removes the resctrl group of a pod with its last sandbox; a pod may have got another one meanwhile."""
        if self._sandbox_of.get(request.pod.uid) == request.pod.id:
            del self._sandbox_of[request.pod.uid]
            self._cgroups.remove_group(request.pod.uid)
        return messages.Empty()

    def _create_container(self, request: Any) -> Any:
        container = request.container
        quota_us = container.linux.resources.cpu.quota.value
        context = self._context(request.pod)._replace(container=container.name, quota_us=quota_us)
        results = run_hooks(self._hooks, context, stop_at_failure=self._stop_at_failure)
        self._count(results)
        for mount in results.adjustment.mounts:
            if mount.scratch:
                _make_scratch(mount)
        failed = {one.hook: short(one.reason) for one in results.failures}
        self._records.put(replace(self._record(request.pod, container, results.applied, failed), route="nri"))
        if self._cgroups.pod(request.pod.uid) is None:
            self._records.provisional.add(container.id)
        return messages.CreateContainerResponse(adjust=adjustment_message(results.adjustment, container))

    def _update_container(self, request: Any) -> Any:
        """Keeps the values of the hooks in an update of a container's resources by the kubelet."""
        quota_us = request.linux_resources.cpu.quota.value
        values = self._values_of(request.pod, HookedContainer(request.container.name, quota_us))
        if values == NO_VALUES:
            return messages.UpdateContainerResponse()
        return messages.UpdateContainerResponse(update=[_update(request.container, values, request.linux_resources)])

    def _values_of(self, pod: Any, container: HookedContainer) -> HookValues:
        return container_values(self._subject(pod), container, self._cgroups.rules(), update=True).values

    def flush(self) -> None:
        """Keeps the records that are new over the end of the agent."""
        self._records.flush(time.time_ns())

    def gauges(self) -> Iterator[Gauge]:
        """Yields the numbers of containers."""
        yield from super().gauges()
        yield Gauge("koord_node_agent_hook_repairs", {}, self.repaired)


def _update(container: Any, values: HookValues, before: Any) -> Any:
    """Returns the update of a container; one that the runtime cannot carry out leaves the others."""
    resources = resources_message(values, before)
    return {"container_id": container.id, "linux": {"resources": resources}, "ignore_failure": True}


def _make_scratch(mount: BindMount) -> None:
    """Makes a container's folder anew, writable by all; what a former container of its name left there is gone."""
    folder = Path(mount.source)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o777)  # noqa: S103,PTH101  programs of any user write there
    except OSError as error:
        log.warning("a folder of a container cannot be made", extra={"folder": mount.source, "error": str(error)})
