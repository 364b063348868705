"""Audit events in files of JSON lines: `audit.log`, and rotated ones beside it, within a bound of disk space.

Source: spec/node-agent.md 7.4.
"""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from shared.agents.actions import AnyAction, Burst, EvictionRequested, Suppressed
from shared.kube.instants import instant_text
from shared.kube.pod import Pod

log = logging.getLogger(__name__)

FILE_BYTES = 2 * 1024 * 1024
ACTIVE = "audit.log"
ROTATED = re.compile(r"audit-(\d{4}(?:-\d{2}){5})-(\d+)\.log").fullmatch

REQUESTED, DECIDED, WRITTEN = 0, 1, 3
"""Levels: evictions, decisions of strategies, files."""


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One event.

    Attributes:
        created_at: RFC 3339.
        type: `pod` or `node`.
        level: 0 is the most important.
        namespace, name, container: of the pod, where the event concerns one.
    """

    created_at: str
    type: str
    level: int
    namespace: str = ""
    name: str = ""
    container: str = ""
    reason: str = ""
    message: str = ""


_encoder = msgspec.json.Encoder()


class AuditLog:
    """Appends events. A disk that takes none is logged once until it does again; the agent goes on."""

    def __init__(self, folder: Path, *, verbosity: int, max_disk_mb: int, now_ns: Callable[[], int]) -> None:
        """Prepares the log; the first event opens its file.

        Args:
            verbosity: events of a higher level are left out.
            max_disk_mb: megabytes of all files, in whole files of two; at least one of them.
        """
        self.folder = folder
        self._verbosity, self._now_ns = verbosity, now_ns
        self._files = max(1, max_disk_mb * 1024 * 1024 // FILE_BYTES)
        self._file: int | None = None
        self._size = 0
        self._rotations = 0
        self._failing = False

    def files(self) -> list[Path]:
        """Returns the files there are, newest first."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except OSError:
            return []
        rotated = [(match[1], int(match[2]), name) for name in names if (match := ROTATED(name))]
        ordered = [self.folder / name for _, _, name in sorted(rotated, reverse=True)]
        return [self.folder / ACTIVE, *ordered] if ACTIVE in names else ordered

    def file_written(self, file: str, value: str) -> None:
        """Records that a file of a cgroup was written."""
        self.record("node", WRITTEN, "UpdateCgroups", f"update {file} to {value}")

    def action(self, action: AnyAction, pod: Pod | None) -> None:
        """Records an action of the agent, apart from reports and requests for data.

        Args:
            pod: that it concerns, where the agent has it.
        """
        match action:
            case Suppressed(policy=policy, cpu_milli=cpu_milli, cpus=cpus):
                limit = "all cpu" if cpu_milli is None else f"{cpu_milli} milli-cores {cpus}".rstrip()
                self.record("node", DECIDED, "suppressBEByNodeCPU", f"best effort may use {limit} by {policy}")
            case Burst(container=container, cfs_quota_us=quota_us, cfs_burst_us=burst_us):
                message = f"cfs quota {quota_us} us, cfs burst {burst_us} us"
                self.record("pod", DECIDED, "CPUBurst", message, pod, container)
            case EvictionRequested(pod_uid=uid, reason=reason):
                message = reason if pod is not None else f"pod {uid}: {reason}"
                self.record("pod", REQUESTED, "evictPod", message, pod)

    def record(
        self, kind: str, level: int, reason: str, message: str, pod: Pod | None = None, container: str = ""
    ) -> None:
        """Appends an event."""
        if level > self._verbosity:
            return
        namespace, name = (pod.metadata.namespace, pod.metadata.name) if pod is not None else ("", "")
        now = instant_text(self._now_ns())
        line = _encoder.encode(AuditEvent(now, kind, level, namespace, name, container, reason, message)) + b"\n"
        try:
            self._append(line, now)
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("audit events are not recorded", extra={"folder": str(self.folder), "why": str(error)})
            self._failing = True

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def _append(self, line: bytes, now: str) -> None:
        if self._file is not None and self._size + len(line) > FILE_BYTES:
            self.close()
            self._rotate(now)
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.folder / ACTIVE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._size = os.fstat(self._file).st_size
        self._size += os.write(self._file, line)

    def _rotate(self, now: str) -> None:
        self._rotations += 1
        stamp = re.sub(r"\D", "-", now)[:19]
        (self.folder / ACTIVE).rename(self.folder / f"audit-{stamp}-{self._rotations}.log")
        for path in self.files()[self._files - 1 :]:  # the new active one comes on top
            path.unlink(missing_ok=True)
