"""Core scheduling: a group's processes share one cookie, and only processes with the same cookie share a core.

It needs a kernel with CONFIG_SCHED_CORE and a processor with SMT. All cookies are cleared at the end.
Source: spec/node-agent.md 4.8.
"""

import contextlib
import ctypes
import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Thread
from typing import Protocol

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.runtime_hooks.core_sched_rule import CoreRule
from shared.domain.qos import kubernetes_qos
from shared.errors import KoordError

log = logging.getLogger(__name__)

_PR_SCHED_CORE = 62
_GET, _CREATE, _SHARE_TO, _SHARE_FROM = range(4)
_THREAD, _PROCESS = 0, 1


class CoreSchedUnavailable(KoordError):
    """This kernel or machine has no core scheduling."""


class CookieApi(Protocol):
    """The kernel's operations on cookies. They raise OSError when the process has ended, or the kernel refuses."""

    def get(self, pid: int) -> int:
        """Returns the cookie of a process; 0: none."""

    def create(self, pid: int) -> None:
        """Creates a cookie for a process."""

    def share(self, source: int, pids: Iterable[int]) -> None:
        """Copies the cookie of a process to others; processes that have ended are skipped."""

    def clear(self, pids: Iterable[int]) -> None:
        """Clears cookies; processes that have ended are skipped."""


class KernelCookieApi:
    """The kernel's operations, by prctl."""

    def __init__(self) -> None:
        """Checks that the kernel supports them.

        Raises:
            CoreSchedUnavailable: it does not.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        try:
            self.get(0)
        except OSError as error:
            why = "no processor with SMT" if error.errno == errno.ENODEV else "no CONFIG_SCHED_CORE"
            raise CoreSchedUnavailable(f"core scheduling needs a kernel and a machine that have it: {why}") from error

    def get(self, pid: int) -> int:
        """As of CookieApi."""
        cookie = ctypes.c_ulonglong()
        self._call(_GET, pid, _THREAD, ctypes.byref(cookie))
        return cookie.value

    def create(self, pid: int) -> None:
        """As of CookieApi."""
        self._call(_CREATE, pid, _PROCESS, None)

    def share(self, source: int, pids: Iterable[int]) -> None:
        """As of CookieApi."""
        self._in_thread(source, pids)

    def clear(self, pids: Iterable[int]) -> None:
        """As of CookieApi."""
        self._in_thread(None, pids)

    def _in_thread(self, source: int | None, pids: Iterable[int]) -> None:
        """Runs the operation in a new thread, which takes on the cookie: the agent itself must never have one."""
        failed: list[OSError] = []

        def run() -> None:
            if source is not None:
                try:
                    self._call(_SHARE_FROM, source, _THREAD, None)
                except OSError as error:
                    failed.append(error)
                    return
            for pid in pids:
                try:
                    self._call(_SHARE_TO, pid, _PROCESS, None)
                except OSError as error:
                    if error.errno != errno.ESRCH:
                        failed.append(error)

        thread = Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def _call(self, op: int, pid: int, scope: int, cookie: object) -> None:
        if self._libc.prctl(_PR_SCHED_CORE, op, pid, scope, cookie) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


class CoreSchedGroups:
    """Keeps the processes of containers in the cookies of their groups."""

    def __init__(self, processes: Processes, cookies: CookieApi | None) -> None:
        """Makes an empty set of groups.

        Args:
            cookies: None where they are not supported.
        """
        self._processes, self._cookies = processes, cookies
        self._members: dict[str, dict[int, None]] = {}
        """Group -> processes that have its cookie."""
        self._containers: dict[str, tuple[str, Mapping[str, str]]] = {}
        """Id of a container -> its group, and its labels in metrics."""
        self._outcomes: Counter[tuple[str, str]] = Counter()
        """(group, `succeeded` or `failed`) -> assignments of new processes, of groups that exist."""
        self._begun = False
        self._logged: set[str] = set()

    def reconcile(self, rule: CoreRule, pods: Iterable[PodCgroups]) -> None:
        """Sets and clears cookies as the NodeSLO's rule requires."""
        if self._cookies is None or not (rule.enabled or self._members):
            return
        desired = {cid: (group, folder, labels) for cid, group, folder, labels in _grouped(rule, pods)}
        if not self._begun:
            self._begun = True
            self._adopt(self._cookies, desired)
        alive: dict[str, dict[int, None]] = {}
        now: dict[str, tuple[str, Mapping[str, str]]] = {}
        for cid, (group, folder, labels) in desired.items():
            pids = self._processes.of(folder)
            if not pids:
                continue
            if group is None:
                if cid in self._containers:
                    self._try(self._cookies.clear, pids)
                continue
            before = self._containers.get(cid)
            moved = before is not None and before[0] != group
            members = self._members.setdefault(group, {})
            new = [pid for pid in pids if moved or pid not in members]
            if new:
                assigned = self._assign(self._cookies, members, pids, new)
                self._outcomes[group, "succeeded" if assigned else "failed"] += 1
                if not assigned:
                    continue
            if new or before is None:
                cookie = {"core_sched_group": group, "core_sched_cookie": str(_cookie_of(self._cookies, pids))}
                now[cid] = (group, {**labels, **cookie})
            else:
                now[cid] = before
            alive.setdefault(group, {}).update(dict.fromkeys(pids))
        self._members, self._containers = alive, now
        groups = {group for group, _, _ in desired.values()}
        for key in [key for key in self._outcomes if key[0] not in groups]:
            del self._outcomes[key]

    def gauges(self) -> Iterator[Gauge]:
        """Yields 1 for each container that has a cookie, and the assignments of each group."""
        for _, labels in self._containers.values():
            yield Gauge("koordlet_container_core_sched_cookie", labels, 1)
        for (group, status), count in self._outcomes.items():
            yield Gauge(
                "koordlet_core_sched_cookie_manage_status", {"core_sched_group": group, "status": status}, count
            )

    def release(self) -> None:
        """Clears all cookies."""
        if self._cookies is not None:
            for members in self._members.values():
                self._try(self._cookies.clear, list(members))
        self._members, self._containers = {}, {}

    def _adopt(self, cookies: CookieApi, desired: dict[str, tuple[str | None, str, dict[str, str]]]) -> None:
        """Adopts cookies after a restart: the first process of a group that has one counts for its group."""
        for group, folder, _ in desired.values():
            if group is None:
                continue
            for pid in self._processes.of(folder):
                try:
                    if cookies.get(pid):
                        self._members.setdefault(group, {})[pid] = None
                except OSError:
                    continue

    def _assign(self, cookies: CookieApi, members: dict[int, None], pids: list[int], new: list[int]) -> bool:
        """Brings the new ones of a container's processes into a group; reports whether they are in it."""
        source = next((pid for pid in members if pid not in new and self._has_cookie(cookies, pid)), None)
        try:
            if source is None:
                cookies.create(pids[0])
                source, new = pids[0], [pid for pid in pids if pid != pids[0]]
            cookies.share(source, new)
        except OSError as error:
            self._warn_once(error)
            return False
        members.update(dict.fromkeys(pids))
        return True

    def _has_cookie(self, cookies: CookieApi, pid: int) -> bool:
        try:
            return cookies.get(pid) != 0
        except OSError:
            return False

    def _try(self, call: Callable[[Iterable[int]], None], pids: list[int]) -> None:
        try:
            call(pids)
        except OSError as error:
            self._warn_once(error)

    def _warn_once(self, error: OSError) -> None:
        if (text := f"a core scheduling cookie cannot be set: {error.strerror}") not in self._logged:
            self._logged.add(text)
            log.warning(text)


def _cookie_of(cookies: CookieApi, pids: Iterable[int]) -> int:
    """Returns the cookie of a container's processes; 0 where all of them have just ended."""
    for pid in pids:
        with contextlib.suppress(OSError):
            if cookie := cookies.get(pid):
                return cookie
    return 0


def _grouped(rule: CoreRule, pods: Iterable[PodCgroups]) -> Iterator[tuple[str, str | None, str, dict[str, str]]]:
    """Yields (id of a container, its group, its cgroup, its labels), sandboxes included."""
    for each in pods:
        meta = each.pod.metadata
        group = rule.group(meta.uid, meta.labels or {}, kubernetes_qos(each.pod))
        names = {cid: name for name, cid in each.node_pod.ids.items()}
        for cid, folder in each.containers.items():
            yield cid, group, folder, {**each.labels, "container_name": names.get(cid, ""), "container_id": cid}
