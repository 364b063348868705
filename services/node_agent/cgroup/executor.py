"""Writes cgroup files: only what differs, parents before children where a value grows, and remembers what it found.

Source: spec/node-agent.md 2.4 and 2.5.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from services.node_agent.cgroup import cgroup_files
from services.node_agent.cgroup.cgroup_files import KNOBS, Kind, Knob, Support
from services.node_agent.cgroup.cgroup_values import MOST_SHARES, UNLIMITED, OutOfRange, shares_of_weight, weight
from services.node_agent.cgroup.original_values import OriginalValues
from shared.domain.cpu_set import BadCpuList, cpu_list, parse_cpus

log = logging.getLogger(__name__)

FORCE_AFTER_S = 60.0
"""A value that was written is taken to be there for so long; then the file is looked at again."""

V1_NO_LIMIT = 0x7FFF_FFFF_FFFF_F000
"""From here on memory.limit_in_bytes means no limit."""


class CgroupValue(NamedTuple):
    """A value that a file is to hold.

    Attributes:
        knob: its name in v1.
        folder: the cgroup, relative to a controller's root.
        value: in the words of v1.
    """

    knob: str
    folder: str
    value: str


class WriteResult(Enum):
    """What became of a write."""

    WRITTEN = "written"
    SAME = "same"
    UNSUPPORTED = "unsupported"
    """This kernel has no such file."""
    GONE = "gone"
    """The cgroup is not there, or not any more."""
    REFUSED = "refused"
    """The value does not fit, or the kernel did not take it."""


class Tree(NamedTuple):
    """Where files lie.

    Attributes:
        root: where the hierarchies are mounted.
        version: 1 or 2.
        kube: the cgroup of all pods, relative to a controller's root.
    """

    root: Path
    version: int
    kube: str

    def file(self, knob: Knob, folder: str) -> str:
        """The file of a knob; a text, as a round looks at many."""
        if self.version == 1 or knob.name == "net_cls.classid":
            return f"{self.root}/{knob.subsystem}/{folder}/{knob.name}"
        return f"{self.root}/{folder}/{knob.file}"

    def path(self, knob: Knob, folder: str) -> Path:
        """The same as a path."""
        return Path(self.file(knob, folder))


class Executor:
    """Writes one node's cgroup files.

    Attributes:
        written: files written since the start.
        refused: writes that the kernel did not take.
    """

    def __init__(self, tree: Tree, clock_ns: Callable[[], int], original_values: OriginalValues) -> None:
        self.tree = tree
        self.written = 0
        self.refused = 0
        self._clock_ns = clock_ns
        self._original_values = original_values
        self._cache: dict[tuple[str, str], tuple[str, int]] = {}
        """(knob, folder) -> the value that is there, and since when that is cached_value."""
        self._has: dict[str, bool] = {}
        self._logged: set[str] = set()

    def supports(self, name: str, folder: str = "") -> bool:
        """Whether this kernel has a knob."""
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
        """What a knob holds, in the words of v1; None when it cannot be read."""
        knob = KNOBS[name]
        try:
            text = self._current(knob, folder)
        except OSError:
            return None
        if knob.kind is Kind.QUOTA or (knob.kind is Kind.UNLIMITED and self.tree.version == 2):
            first = text.split(maxsplit=1)[0] if text else ""
            return "-1" if first == cgroup_files.MAX else first
        if name == "memory.limit_in_bytes" and text.isdigit() and int(text) >= V1_NO_LIMIT:
            return "-1"
        return text

    def cached_value(self, name: str, folder: str) -> str | None:
        """What a knob holds by what was written or read lately; the file is looked at when that is FORCE_AFTER_S ago."""
        held = self._cache.get((name, folder))
        if held is not None and self._clock_ns() - held[1] <= FORCE_AFTER_S * 1e9:
            return held[0]
        if (found := self.read(name, folder)) is not None:
            self._cache[name, folder] = (found, self._clock_ns())
        return found

    def update(self, desired: CgroupValue, *, cached: bool = True) -> WriteResult:
        """Makes one file hold a value.

        Args:
            cached: a value that was there within FORCE_AFTER_S is not looked at again.
        """
        key = (desired.knob, desired.folder)
        if cached and not self._needs_check(key, desired.value):
            return WriteResult.SAME
        done = self._write(desired)
        if done is not WriteResult.GONE:  # what the kernel does not take now it is asked again after a while only
            self._cache[key] = (desired.value, self._clock_ns())
        return done

    def update_levels(self, levels: Sequence[Iterable[CgroupValue]], *, cached: bool = True) -> dict[WriteResult, int]:
        """Makes the files of several levels hold their values, level 0 being the parents.

        What grows is written parent first, what shrinks child first, so that no child ever has more than its parent.

        Returns: how many writes ended how, those left out because of the cache not counted.
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
        """Drops what is cached of cgroups that are gone."""
        gone = frozenset(folders)
        for key in [key for key in self._cache if key[1] in gone]:
            del self._cache[key]
        self._original_values.forget(gone)

    def restore(self) -> int:
        """Puts back what was found in each file that still holds our value; how many were written.

        A file that another hand has changed since is left alone.
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
        held = self._cache.get(key)
        return held is None or held[0] != value or self._clock_ns() - held[1] > FORCE_AFTER_S * 1e9

    def _write(self, desired: CgroupValue) -> WriteResult:
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
            _put(self.tree.file(knob, folder), text)
        except (FileNotFoundError, NotADirectoryError):
            return WriteResult.GONE
        except OSError as error:
            if error.errno == 19:  # ENODEV: the cgroup was removed while its file was open
                return WriteResult.GONE
            return self._refuse(desired, str(error))
        except OutOfRange as error:
            return self._refuse(desired, str(error))
        self.written += 1
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
        return _get(file)

    def _in_version_terms(self, knob: Knob, value: str) -> str:
        if self.tree.version == 2:
            if knob.kind is Kind.SHARES:
                return str(weight(int(value)))
            if knob.kind in {Kind.UNLIMITED, Kind.QUOTA} and value == "-1":
                return cgroup_files.MAX
        return value

    def _in_v1_terms(self, knob: Knob, folder: str, text: str) -> str:
        """What was found, as `update` takes it; a v2 set of cpus as it was configured, which may be empty: all of the parent's."""
        if self.tree.version == 2 and knob.kind is Kind.CPUS:
            return _get(self.tree.file(knob, folder))
        if self.tree.version == 2 and knob.kind is Kind.SHARES:
            found = shares_of_weight(int(text))
            while found < MOST_SHARES and weight(found) < int(text):
                found += 1  # weights are coarser: the next shares that give this weight again
            return str(found)
        if knob.kind in {Kind.QUOTA, Kind.UNLIMITED}:
            first = text.split(maxsplit=1)[0]
            if first == cgroup_files.MAX or (first.isdigit() and int(first) >= V1_NO_LIMIT):
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
                    held = cgroup_files.limit(current)
                except ValueError:
                    return False
                no_limit = held >= V1_NO_LIMIT
                return (no_limit and cgroup_files.limit(text) >= V1_NO_LIMIT) or held == cgroup_files.limit(text)
        return current == text

    def _first_pass_value(self, desired: CgroupValue) -> CgroupValue | None:
        """The first pass's value: None when the knob is not merged, an empty one when its turn is the second pass."""
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
            grows = min(cgroup_files.limit(desired.value), UNLIMITED) > cgroup_files.limit(current)
        except (OSError, ValueError, BadCpuList):
            return keep
        return desired if grows else keep


def _get(file: str) -> str:
    """What a file holds.

    Raises:
        OSError: it cannot be read.
    """
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65_536).decode().strip("\n")
    finally:
        os.close(fd)


def _put(file: str, text: str) -> None:
    """Writes a file of the kernel's: at once, and only one that is there.

    Raises:
        OSError: it is not there, or the kernel does not take it.
    """
    fd = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
