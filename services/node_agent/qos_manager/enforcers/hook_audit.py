"""Finds containers that run without the values of their hooks, and notices when they have been repaired.

The reconciler shows it each container before it writes; the container runtime's plugin names those that it has updated.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from services.node_agent.cgroup.executor import Executor
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups, containers
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.qos_manager.enforcers.hook_value_files import values_of_cgroup
from services.node_agent.runtime_hooks.cgroup_hooks import (
    CGROUP_HOOKS,
    Computed,
    HookedContainer,
    container_values,
    without_identity,
)
from services.node_agent.runtime_hooks.hook_records import Expected, HookRecords, missing, short, state_of
from services.node_agent.runtime_hooks.hook_rules import HookRules
from services.node_agent.runtime_hooks.hook_values import HookValues
from services.node_agent.states_informer.container_names_from_log_links import LoggedContainer
from shared.agents.actions import ContainerHooks, Route
from shared.kube.instants import SECOND

STARTS_WITHIN_NS = 60 * SECOND
"""Nanoseconds for which a container that is being repaired may have no cgroup: it is created, and starts soon."""
ENDED = "the container ended before the agent saw it"
UNKNOWN_HOOKS = "hooks"
"""In place of the names of hooks where the pod is not known any more."""

StartOnly = Callable[[PodCgroups, str], Mapping[str, str]]
"""From a pod and a container's name to hooks that act at its creation alone, each with the reason why it is missing."""


class RuntimeSide(NamedTuple):
    """The knowledge of the container runtime's plugin.

    Attributes:
        settled: the runtime has listed its containers, or cannot be reached: until then it may know more than files.
        start_only: hooks that only the runtime can apply.
        route: from a pod and a container's name to the route of one whose values are in place, where it is known.
        follows_ends: a container that ended unseen lacked its hooks. False for a proxy before the runtime, whose
            requests for new containers have no id: the agent may end between such a request and the start.
    """

    settled: Callable[[], bool] = lambda: True
    start_only: StartOnly = lambda *_: {}
    route: Callable[[PodCgroups, str], Route] = lambda *_: ""
    follows_ends: bool = True


NO_RUNTIME = RuntimeSide()


class HookAudit:
    """Compares containers with the values of their hooks."""

    def __init__(
        self, records: HookRecords, executor: Executor, processes: Processes, runtime: RuntimeSide = NO_RUNTIME
    ) -> None:
        self._runtime = runtime
        self._records, self._executor, self._processes = records, executor, processes

    def look(self, each: PodCgroups, container: str, computed: Computed) -> None:
        """Takes a running container in, before its files are written.

        Args:
            computed: its hooks, with the values that this node has.
        """
        cid = each.node_pod.ids[container]
        known, provisional = cid in self._records, cid in self._records.provisional
        unfinished = self._records.unfinished(cid)
        if cid in self._records.expected:
            self._expect_anew(cid, computed)
            return
        if known and not provisional and not unfinished:
            return
        failed = {one.hook: short(one.reason) for one in computed.failures}
        if not known or unfinished:
            failed |= self._runtime.start_only(each, container)
        if self._runtime.settled():
            self._records.provisional.discard(cid)
        meta = each.pod.metadata
        record = ContainerHooks(
            cid, meta.uid, meta.key, container, state_of(failed), time.time_ns(),
            hooks=computed.hooks, failed=failed,
        )  # fmt: skip
        if unfinished or not self._holds(each.containers[cid], computed.values):
            expected = replace(record, route="reconciler")
            self._records.expect(Expected(expected, computed.values, lambda: each.folder))
        elif not known and self._runtime.settled():  # until then the runtime may know more of it than its files show
            self._records.put(replace(record, route=self._runtime.route(each, container)))

    def flush(self) -> None:
        """Keeps what is new over the end of the agent: containers that are about to be repaired, before they are."""
        self._records.flush(time.time_ns())

    def confirm(self) -> bool:
        """Records containers that have been repaired meanwhile; reports whether none is left."""
        if not self._runtime.settled():
            return False
        for cid, expected in list(self._records.expected.items()):
            folder = containers(self._base, expected.pod_folder()).get(cid)
            if folder is None:
                if time.time_ns() - expected.record.at_ns < STARTS_WITHIN_NS:
                    continue  # a runtime lists containers that are created, before they have a cgroup
                del self._records.expected[cid]
                self._records.put(missing(expected.record, "the container ended before it was repaired"))
            elif self._holds(folder, expected.values):
                del self._records.expected[cid]
                self._records.put(self._repaired(expected, folder))
        return not self._records.expected

    def ended(
        self,
        logged: Mapping[str, LoggedContainer],
        pods: Iterable[PodCgroups],
        rules: HookRules,
        folders: Mapping[str, str],
    ) -> None:
        """Records containers that have ended without having been seen.

        Args:
            logged: by id, those that started since the agent records.
            folders: uid -> cgroup of each pod, relative to a controller's root; also of those not received yet.
        """
        if not self._runtime.settled() or not self._runtime.follows_ends:
            return
        by_uid = {each.pod.metadata.uid: each for each in pods}
        for cid, one in logged.items():
            if cid in self._records or not one.pod_uid:
                continue
            if one.pod_uid in folders and cid in containers(self._base, folders[one.pod_uid]):
                continue
            hooks: Iterable[str] = (UNKNOWN_HOOKS,)
            if (each := by_uid.get(one.pod_uid)) is not None:
                computed = container_values(each.pod, HookedContainer(one.container), rules)
                if not rules.identities.enabled:
                    computed = without_identity(computed)
                hooks = (*computed.hooks, *self._runtime.start_only(each, one.container))
            if failed := dict.fromkeys(hooks, ENDED):
                self._records.put(
                    ContainerHooks(
                        cid, one.pod_uid, one.pod, one.container, "notApplied", one.started_ns, failed=failed
                    )
                )

    def _expect_anew(self, cid: str, computed: Computed) -> None:
        """Takes over the values that the rules have now: the reconciler writes these, and no longer the former ones."""
        expected = self._records.expected[cid]
        record = expected.record
        failed = {name: reason for name, reason in record.failed.items() if name not in CGROUP_HOOKS}
        failed |= {one.hook: short(one.reason) for one in computed.failures}
        hooks = {name for name in record.hooks if name not in CGROUP_HOOKS} | set(computed.hooks)
        record = replace(record, state=state_of(failed), hooks=tuple(sorted(hooks)), failed=failed)
        self._records.expected[cid] = expected._replace(record=record, values=computed.values)

    @property
    def _base(self) -> Path:
        tree = self._executor.tree
        return tree.root / "cpu" if tree.version == 1 else tree.root

    def _holds(self, folder: str, values: HookValues) -> bool:
        if not all(self._executor.holds(each) for each in values_of_cgroup(folder, values)):
            return False
        if values.oom_score is None:
            return True
        return all(score == values.oom_score for score in self._scores(folder))

    def _scores(self, folder: str) -> Iterator[int]:
        for pid in self._processes.of(folder):
            try:
                yield int((self._processes.proc / f"{pid}/oom_score_adj").read_text())
            except (OSError, ValueError):
                continue  # it has ended

    def _repaired(self, expected: Expected, folder: str) -> ContainerHooks:
        now_ns = time.time_ns()
        started_ns = expected.started_ns or self._processes.oldest_start_ns(folder)
        if expected.record.failed:
            return expected.record
        after_ms = None if started_ns is None else max(0, now_ns - started_ns) // 1_000_000
        return replace(expected.record, state="repaired", after_ms=after_ms)
