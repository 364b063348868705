"""Records for each container whether its hooks were in force when it started, so that failing open is always visible.

A record is in the agent's report, on its metrics page, and in a file that outlives the agent: a container that was
recorded by a run that was killed is not taken for one that started without its hooks.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.runtime_hooks.hook_values import HookValues
from shared.agents.actions import MAX_CONTAINERS, ContainerHooks, HooksReported
from shared.file_replacement import replace_file
from shared.kube.instants import SECOND
from shared.kube.json_text import decode_with

log = logging.getLogger(__name__)

FILE = "container-hooks.jsonl"
MOST = 4_096
"""Records kept at most; the oldest are dropped first."""
REPEAT_INTERVAL_NS = 86_400 * SECOND
RETRY_INTERVAL_NS = 60 * SECOND
"""Nanoseconds between two attempts to write a file that could not be written."""
KEPT_UNSEEN_NS = 300 * SECOND
"""Nanoseconds for which a record without cgroup and log is kept: a container has neither before it starts."""
MOST_REASON = 256
BEING_SET = "its values are being set"
START_ONLY = "it acts only when a container is created, and the agent was not connected to the runtime"


class Expected(NamedTuple):
    """A container that ran without values of its hooks, and is being repaired.

    Attributes:
        record: as it will be once the values are in place.
        values: that its cgroup and its processes must have.
        pod_folder: returns the pod's cgroup, relative to a controller's root.
        started_ns: start of its program, nanoseconds since the epoch; 0: to be read from its processes.
    """

    record: ContainerHooks
    values: HookValues
    pod_folder: Callable[[], str]
    started_ns: int = 0


_line = msgspec.json.Decoder(ContainerHooks)
_first_line = msgspec.json.Decoder(int)


class HookRecords:
    """The records of one node's containers.

    Attributes:
        since_ns: from when on containers are recorded: the first start of an agent here, nanoseconds since the epoch.
        expected: container id -> one that is being repaired.
        provisional: ids of containers whose pod the agent had not received when they were created.
    """

    def __init__(self, state_dir: Path | None, now_ns: int) -> None:
        self.since_ns = now_ns
        self.expected: dict[str, Expected] = {}
        self.provisional: set[str] = set()
        self._file = state_dir / FILE if state_dir else None
        self._records: dict[str, ContainerHooks] = {}
        self._unwritten: list[ContainerHooks] = []
        self._unreported: dict[str, None] = {}
        self._repeated_ns = now_ns
        self._counts: Counter[tuple[str, str]] = Counter()
        self._longest_ms: dict[str, int] = {}
        self._unwritable = False
        self._retried_ns = now_ns

    def load(self) -> None:
        """Loads the records of earlier runs, which are reported again; a broken file counts as none."""
        if self._file is None:
            return
        try:
            first, *lines = self._file.read_bytes().splitlines() or [b""]
            self.since_ns = decode_with(_first_line, first)
            for line in lines:
                record = decode_with(_line, line)
                self._records[record.container_id] = record
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("records of hooks are incomplete", extra={"file": str(self._file), "why": str(error)})
        self._unreported = dict.fromkeys(self._records)
        self._rewrite()

    def __contains__(self, container: object) -> bool:
        return container in self._records

    def put(self, record: ContainerHooks) -> None:
        """Records a container; a newer record replaces the older one."""
        before = self._records.pop(record.container_id, None)
        self._records[record.container_id] = record
        self._unreported[record.container_id] = None
        self._unwritten.append(record)
        is_new = before is None or (before.state, before.route) != (record.state, record.route)
        if is_new and BEING_SET not in record.failed.values():
            self._counts[record.state, record.route] += 1
        if record.after_ms is not None:
            self._longest_ms[record.route] = max(record.after_ms, self._longest_ms.get(record.route, 0))
        while len(self._records) > MOST:
            self._drop(next(iter(self._records)))

    def expect(self, expected: Expected) -> None:
        """Records a container that is being repaired: an agent that is killed meanwhile must not take it for another."""
        self.expected[expected.record.container_id] = expected
        self.put(missing(expected.record, BEING_SET))

    def unfinished(self, container: str) -> bool:
        """Reports whether an earlier run was killed while the container was being repaired."""
        record = self._records.get(container)
        return record is not None and container not in self.expected and BEING_SET in record.failed.values()

    def flush(self, now_ns: int) -> None:
        """Appends what is new to the file. It is not synced: a crash of the machine ends the containers, too.

        A file that could not be written is tried again, whole, once a minute.
        """
        lines, self._unwritten = self._unwritten, []
        if self._unwritable:
            if not 0 <= now_ns - self._retried_ns < RETRY_INTERVAL_NS:
                self._retried_ns = now_ns
                self._rewrite()
            return
        if not lines or self._file is None:
            return
        try:
            with self._file.open("ab") as file:
                file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        except OSError as error:
            self._retried_ns = now_ns
            self._cannot_keep(error)

    def keep(self, seen: Collection[str], now_ns: int) -> None:
        """Drops the records of containers that are gone: neither seen nor created lately."""
        unseen_ns = now_ns - KEPT_UNSEEN_NS
        gone = [cid for cid, one in self._records.items() if cid not in seen and one.at_ns < unseen_ns]
        for cid in gone:
            self._drop(cid)
        if gone:
            self._rewrite()

    def reports(self, now_ns: int) -> Iterator[HooksReported]:
        """Yields what is to be reported now: new and changed records, and once a day all."""
        if now_ns - self._repeated_ns >= REPEAT_INTERVAL_NS:
            self._repeated_ns = now_ns
            self._unreported = dict.fromkeys(self._records)
        due, self._unreported = [self._records[cid] for cid in self._unreported], {}
        for start in range(0, len(due), MAX_CONTAINERS):
            yield HooksReported(tuple(due[start : start + MAX_CONTAINERS]))

    def gauges(self) -> Iterator[Gauge]:
        """Yields the numbers of containers by state and route since the start, and the longest repair of each route."""
        for (state, route), count in self._counts.items():
            yield Gauge("koord_node_agent_container_hooks", {"state": state, "route": route}, count)
        for route, longest_ms in self._longest_ms.items():
            yield Gauge("koord_node_agent_longest_hook_repair_seconds", {"route": route}, longest_ms / 1000)

    def _drop(self, container: str) -> None:
        del self._records[container]
        self._unreported.pop(container, None)
        self.expected.pop(container, None)
        self.provisional.discard(container)

    def _rewrite(self) -> None:
        if self._file is None:
            return
        lines = [msgspec.json.encode(self.since_ns), *map(msgspec.json.encode, self._records.values())]
        self._unwritten = []
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, b"".join(line + b"\n" for line in lines))
        except OSError as error:
            self._cannot_keep(error)
            return
        if self._unwritable:
            self._unwritable = False
            log.info("records of hooks are kept again", extra={"file": str(self._file)})

    def _cannot_keep(self, error: OSError) -> None:
        if self._unwritable:
            return
        self._unwritable = True
        log.warning(
            "records of hooks cannot be kept over a restart; it is tried again",
            extra={"why": os.strerror(error.errno or 0)},
        )


def state_of(failed: Mapping[str, str]) -> Literal["applied", "notApplied"]:
    """Returns the state of a new record: a container with a hook that failed is never one with all of them."""
    return "notApplied" if failed else "applied"


def missing(record: ContainerHooks, reason: str) -> ContainerHooks:
    """Returns the record of a container that lacks all of its hooks."""
    failed = {**dict.fromkeys(record.hooks, reason), **record.failed}
    return replace(record, state="notApplied", hooks=(), failed=failed)


def short(reason: str) -> str:
    """Returns a reason of a length that a report may have."""
    return reason if len(reason) <= MOST_REASON else f"{reason[: MOST_REASON - 3]}..."
