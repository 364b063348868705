"""Writes cgroup files: only values that differ, parents before children where a value grows; keeps the original values.

Source: spec/node-agent.md 2.4 and 2.5.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from services.node_agent.cgroup import cgroup_knobs
from services.node_agent.cgroup.cgroup_knobs import KNOBS, Kind, Knob, Support
from services.node_agent.cgroup.cpu_conversions import MOST_SHARES, UNLIMITED, OutOfRange, shares_of_weight, weight
from services.node_agent.cgroup.original_values import OriginalValues
from services.node_agent.prometheus.durations import Durations
from shared.domain.cpu_set import BadCpuList, cpu_list, parse_cpus

log = logging.getLogger(__name__)

FORCE_AFTER_S = 60.0
"""Seconds for which a written value is assumed to be in place; after that the file is read again."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

V1_NO_LIMIT = 0x7FFF_FFFF_FFFF_F000
"""From this value on, memory.limit_in_bytes means no limit."""


class CgroupValue(NamedTuple):
    """The desired value of a file.

    Attributes:
        knob: its name in v1.
        folder: the cgroup, relative to a controller's root.
        value: in terms of v1.
    """

    knob: str
    folder: str
    value: str


class WriteResult(Enum):
    """The result of a write."""

    WRITTEN = "written"
    SAME = "same"
    UNSUPPORTED = "unsupported"
    """This kernel has no such file."""
    GONE = "gone"
    """The cgroup is not there, or not any more."""
    REFUSED = "refused"
    """The value is invalid, or the kernel rejected it."""


_TIMED = {WriteResult.WRITTEN: "success", WriteResult.REFUSED: "failed"}
"""Results whose durations count -> koordlet's name of the status."""


class CgroupTree(NamedTuple):
    """The mounted hierarchies.

    Attributes:
        root: where the hierarchies are mounted.
        version: 1 or 2.
        kube: the cgroup of all pods, relative to a controller's root.
    """

    root: Path
    version: int
    kube: str

    def file(self, knob: Knob, folder: str) -> str:
        """Returns the path of a knob's file, as a text: a cycle uses many, and a text costs less than a Path."""
        if self.version == 1 or knob.name == "net_cls.classid":
            return f"{self.root}/{knob.subsystem}/{folder}/{knob.name}"
        return f"{self.root}/{folder}/{knob.file}"

    def path(self, knob: Knob, folder: str) -> Path:
        """Returns the path of a knob's file, as a Path."""
        return Path(self.file(knob, folder))


class Executor:
    """Writes one node's cgroup files.

    Attributes:
        written: files written since the start.
        refused: writes that the kernel rejected.
        on_write: called with path and value of each file that was written.
        durations: of writes and of attempts that the kernel rejected, by knob.
    """

    def __init__(self, tree: CgroupTree, clock_ns: Callable[[], int], original_values: OriginalValues) -> None:
        self.tree = tree
        self.written = 0
        self.refused = 0
        self.on_write: Callable[[str, str], None] = lambda _file, _value: None
        self.durations = Durations("koordlet_resource_update_duration_milliseconds", ("type", "status"))
        self._clock_ns = clock_ns
        self._original_values = original_values
        self._cache: dict[tuple[str, str], tuple[str, int]] = {}
        """(knob, folder) -> (value in the file, time of the last write or read)."""
        self._has: dict[str, bool] = {}
        self._logged: set[str] = set()

    def supports(self, name: str, folder: str = "") -> bool:
        """Reports whether this kernel has a knob."""
        knob = KNOBS[name]
        how = knob.v1 if self.tree.version == 1 else knob.v2
        if how in {Support.ALWAYS, Support.NEVER}:
            return how is Support.ALWAYS
        if how is Support.TARGET:
            return os.path.exists(self.tree.file(knob, folder))  # noqa: PTH110  half the cost of a Path
        if name not in self._has:
            self._has[name] = self.tree.path(knob, self.tree.kube if how is Support.KUBE else "").exists()
        return self._has[name]

    def read(self, name: str, folder: str) -> str | None:
        """Returns the value of a knob, in terms of v1; None when it cannot be read."""
        knob = KNOBS[name]
        try:
            text = self._current(knob, folder)
        except OSError:
            return None
        if knob.kind is Kind.QUOTA or (knob.kind is Kind.UNLIMITED and self.tree.version == 2):
            first = text.split(maxsplit=1)[0] if text else ""
            return "-1" if first == cgroup_knobs.MAX else first
        if name == "memory.limit_in_bytes" and text.isdigit() and int(text) >= V1_NO_LIMIT:
            return "-1"
        return text

    def cached_value(self, name: str, folder: str) -> str | None:
        """Returns the value of a knob from the last write or read; the file is read again after FORCE_AFTER_S."""
        cached = self._cache.get((name, folder))
        if cached is not None and self._clock_ns() - cached[1] <= FORCE_AFTER_S * 1e9:
            return cached[0]
        if (found := self.read(name, folder)) is not None:
            self._cache[name, folder] = (found, self._clock_ns())
        return found

    def holds(self, desired: CgroupValue) -> bool:
        """Reports whether a file has a value now, without the cache; one that this kernel does not have counts."""
        if not self.supports(desired.knob, desired.folder):
            return True
        return self._unchanged(KNOBS[desired.knob], desired.folder, desired.value)

    def update(self, desired: CgroupValue, *, cached: bool = True) -> WriteResult:
        """Brings one file to a value.

        Args:
            cached: skip a file that had the value within FORCE_AFTER_S.
        """
        key = (desired.knob, desired.folder)
        if cached and not self._needs_check(key, desired.value):
            return WriteResult.SAME
        done = self._write(desired)
        if done is not WriteResult.GONE:  # a value that the kernel rejects now is tried again after FORCE_AFTER_S only
            self._cache[key] = (desired.value, self._clock_ns())
        return done

    def update_levels(self, levels: Sequence[Iterable[CgroupValue]], *, cached: bool = True) -> dict[WriteResult, int]:
        """Brings the files of several levels to their values, level 0 being the parents.

        Values that grow are written parent first, values that shrink child first, so that no child ever exceeds its
        parent.

        Returns: counts of results, without the writes that the cache made unnecessary.
        """
        counts: dict[WriteResult, int] = {}
        due = [[w for w in level if not cached or self._needs_check((w.knob, w.folder), w.value)] for level in levels]
        later: list[list[CgroupValue]] = []
        for level in due:
            later.append([])
            for desired in level:
                loose = self._first_pass_value(desired)
                if loose is None or loose == desired:
                    done = self.update(desired, cached=False)
                    counts[done] = counts.get(done, 0) + 1
                    continue
                if loose.value:
                    self._write(loose)
                later[-1].append(desired)
        for level in reversed(later):
            for desired in level:
                done = self.update(desired, cached=False)
                counts[done] = counts.get(done, 0) + 1
        return counts

    def forget(self, folders: Iterable[str]) -> None:
        """Drops cache and original values of cgroups that are gone."""
        gone = frozenset(folders)
        for key in [key for key in self._cache if key[1] in gone]:
            del self._cache[key]
        self._original_values.forget(gone)

    def restore(self) -> int:
        """Restores the original value of each file that still holds ours; returns the number of files written.

        A file that somebody else has changed since is left alone.
        """
        by_depth: dict[int, list[CgroupValue]] = {}
        for (knob, folder), (before, ours) in self._original_values.entries():
            if not self._unchanged(KNOBS[knob], folder, ours):
                continue
            if not before:  # no set of its own
                self.tree.path(KNOBS[knob], folder).write_text("\n")
                continue
            by_depth.setdefault(folder.count("/") if folder else -1, []).append(CgroupValue(knob, folder, before))
        counts = self.update_levels([by_depth[depth] for depth in sorted(by_depth)], cached=False)
        self._original_values.clear()
        return counts.get(WriteResult.WRITTEN, 0)

    def _needs_check(self, key: tuple[str, str], value: str) -> bool:
        cached = self._cache.get(key)
        return cached is None or cached[0] != value or self._clock_ns() - cached[1] > FORCE_AFTER_S * 1e9

    def _write(self, desired: CgroupValue) -> WriteResult:
        began_ns = time.perf_counter_ns()
        done = self._write_where_it_differs(desired)
        if done in _TIMED:
            self.durations.observe((time.perf_counter_ns() - began_ns) / 1e6, desired.knob, _TIMED[done])
        return done

    def _write_where_it_differs(self, desired: CgroupValue) -> WriteResult:
        knob, folder, value = KNOBS[desired.knob], desired.folder, desired.value
        if not self.supports(knob.name, folder):
            if knob.v2 is Support.TARGET and self.tree.version == 2 and not self._folder_exists(knob, folder):
                return WriteResult.GONE
            return WriteResult.UNSUPPORTED
        if not knob.accepts(value):
            return self._refuse(desired, "the value does not fit")
        try:
            text = self._in_version_terms(knob, value)
            before = self._current(knob, folder)
            if self._holds(knob, before, text):
                self._original_values.adopt((knob.name, folder), value)
                return WriteResult.SAME
            found = self._in_v1_terms(knob, folder, before)
            _write_file(self.tree.file(knob, folder), text)
        except (FileNotFoundError, NotADirectoryError):
            return WriteResult.GONE
        except OSError as error:
            if error.errno == 19:  # ENODEV: the cgroup was removed while its file was open
                return WriteResult.GONE
            return self._refuse(desired, str(error))
        except OutOfRange as error:
            return self._refuse(desired, str(error))
        self.written += 1
        self.on_write(self.tree.file(knob, folder), text)
        # Devices have no single value to restore (their enforcer resets them), and processes cannot be moved back.
        if knob.kind is not Kind.DEVICE and knob.name != "cgroup.procs":
            self._original_values.remember((knob.name, folder), found, value)
        return WriteResult.WRITTEN

    def _folder_exists(self, knob: Knob, folder: str) -> bool:
        return self.tree.path(knob, folder).parent.is_dir()

    def _refuse(self, desired: CgroupValue, why: str) -> WriteResult:
        self.refused += 1
        if (text := f"{desired.knob} {why}") not in self._logged:
            self._logged.add(text)
            log.warning(
                "a cgroup file is not written", extra={"knob": desired.knob, "folder": desired.folder, "why": why}
            )
        return WriteResult.REFUSED

    def _current(self, knob: Knob, folder: str) -> str:
        file = self.tree.file(knob, folder)
        if knob.kind is Kind.CPUS and self.tree.version == 2:
            file += ".effective"
        return _read_file(file)

    def _in_version_terms(self, knob: Knob, value: str) -> str:
        if self.tree.version == 2:
            if knob.kind is Kind.SHARES:
                return str(weight(int(value)))
            if knob.kind in {Kind.UNLIMITED, Kind.QUOTA} and value == "-1":
                return cgroup_knobs.MAX
        return value

    def _in_v1_terms(self, knob: Knob, folder: str, text: str) -> str:
        """Returns a value that was read, in terms of v1. A v2 cpuset is taken as configured.

        An empty one inherits all of the parent's.
        """
        if self.tree.version == 2 and knob.kind is Kind.CPUS:
            return _read_file(self.tree.file(knob, folder))
        if self.tree.version == 2 and knob.kind is Kind.SHARES:
            found = shares_of_weight(int(text))
            while found < MOST_SHARES and weight(found) < int(text):
                found += 1  # weights are coarser: take the next shares with this weight
            return str(found)
        if knob.kind in {Kind.QUOTA, Kind.UNLIMITED}:
            first = text.split(maxsplit=1)[0]
            if first == cgroup_knobs.MAX or (first.isdigit() and int(first) >= V1_NO_LIMIT):
                return "-1"
            return first
        return text

    def _unchanged(self, knob: Knob, folder: str, value: str) -> bool:
        try:
            return self._holds(knob, self._current(knob, folder), self._in_version_terms(knob, value))
        except (OSError, OutOfRange):
            return False

    def _holds(self, knob: Knob, current: str, text: str) -> bool:
        match knob.kind:
            case Kind.DEVICE:
                lines = current.splitlines()
                device, _, amount = text.partition(" ")
                if amount == "0":
                    return not any(line.split(" ", 1)[0] == device for line in lines)
                return text in lines
            case Kind.CPUS:
                try:
                    return parse_cpus(current) == parse_cpus(text)
                except BadCpuList:
                    return False
            case Kind.QUOTA | Kind.UNLIMITED | Kind.LARGER:
                try:
                    present = cgroup_knobs.limit(current)
                except ValueError:
                    return False
                # Without a limit v1 shows a page-aligned number that depends on the page size, so any above counts.
                desired = cgroup_knobs.limit(text)
                if present >= V1_NO_LIMIT:
                    return desired >= V1_NO_LIMIT
                # Amounts of memory are kept in whole pages, rounded down.
                whole = desired - desired % PAGE_BYTES if knob.subsystem == "memory" else desired
                return present in {desired, whole}
        return current == text

    def _first_pass_value(self, desired: CgroupValue) -> CgroupValue | None:
        """Returns the value for the first pass.

        None for a knob that is not merged, an empty one when it is written in the second pass.
        """
        knob = KNOBS[desired.knob]
        if knob.kind not in {Kind.QUOTA, Kind.LARGER, Kind.CPUS}:
            return None
        keep = desired._replace(value="")
        if not self.supports(knob.name, desired.folder) or not knob.accepts(desired.value):
            return None
        try:
            current = self._current(knob, desired.folder)
            if knob.kind is Kind.CPUS:
                old, new = parse_cpus(current), parse_cpus(desired.value)
                return keep if new <= old else desired._replace(value=cpu_list(old | new))
            grows = min(cgroup_knobs.limit(desired.value), UNLIMITED) > cgroup_knobs.limit(current)
        except (OSError, ValueError, BadCpuList):
            return keep
        return desired if grows else keep


def _read_file(file: str) -> str:
    """Returns the content of a file.

    Raises:
        OSError: it cannot be read.
    """
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65_536).decode().strip("\n")
    finally:
        os.close(fd)


def _write_file(file: str, text: str) -> None:
    """Writes a kernel file: in one call, and never creating it.

    Raises:
        OSError: it is absent, or the kernel rejects the value.
    """
    fd = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
