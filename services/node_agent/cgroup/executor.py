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
from services.node_agent.cgroup.original_values import Found
from shared.domain.cpu_set import BadCpuList, cpu_list, parse_cpus

log = logging.getLogger(__name__)

FORCE_AFTER_S = 60.0
"""A value that was written is taken to be there for so long; then the file is looked at again."""

V1_NO_LIMIT = 0x7FFF_FFFF_FFFF_F000
"""From here on memory.limit_in_bytes means no limit."""


class Wanted(NamedTuple):
    """A value that a file is to hold.

    Attributes:
        knob: its name in v1.
        folder: the cgroup, relative to a controller's root.
        value: in the words of v1.
    """

    knob: str
    folder: str
    value: str


class Done(Enum):
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

    def __init__(self, tree: Tree, clock_ns: Callable[[], int], found: Found) -> None:
        self.tree = tree
        self.written = 0
        self.refused = 0
        self._clock_ns = clock_ns
        self._found = found
        self._cache: dict[tuple[str, str], tuple[str, int]] = {}
        """(knob, folder) -> the value that is there, and since when that is known."""
        self._has: dict[str, bool] = {}
        self._said: set[str] = set()

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

    def known(self, name: str, folder: str) -> str | None:
        """What a knob holds by what was written or read lately; the file is looked at when that is FORCE_AFTER_S ago."""
        held = self._cache.get((name, folder))
        if held is not None and self._clock_ns() - held[1] <= FORCE_AFTER_S * 1e9:
            return held[0]
        if (found := self.read(name, folder)) is not None:
            self._cache[name, folder] = (found, self._clock_ns())
        return found

    def update(self, wanted: Wanted, *, cached: bool = True) -> Done:
        """Make one file hold a value.

        Args:
            cached: a value that was there within FORCE_AFTER_S is not looked at again.
        """
        key = (wanted.knob, wanted.folder)
        if cached and not self._due(key, wanted.value):
            return Done.SAME
        done = self._write(wanted)
        if done is not Done.GONE:  # what the kernel does not take now it is asked again after a while only
            self._cache[key] = (wanted.value, self._clock_ns())
        return done

    def update_levels(self, levels: Sequence[Iterable[Wanted]], *, cached: bool = True) -> dict[Done, int]:
        """Make the files of several levels hold their values, level 0 being the parents.

        What grows is written parent first, what shrinks child first, so that no child ever has more than its parent.

        Returns: how many writes ended how, those left out because of the cache not counted.
        """
        counts: dict[Done, int] = {}
        due = [[w for w in level if not cached or self._due((w.knob, w.folder), w.value)] for level in levels]
        later: list[list[Wanted]] = []
        for level in due:
            later.append([])
            for wanted in level:
                loose = self._loosened(wanted)
                if loose is None or loose == wanted:
                    done = self.update(wanted, cached=False)
                    counts[done] = counts.get(done, 0) + 1
                    continue
                if loose.value:
                    self._write(loose)
                later[-1].append(wanted)
        for level in reversed(later):
            for wanted in level:
                done = self.update(wanted, cached=False)
                counts[done] = counts.get(done, 0) + 1
        return counts

    def forget(self, folders: Iterable[str]) -> None:
        """Drop what is cached of cgroups that are gone."""
        gone = frozenset(folders)
        for key in [key for key in self._cache if key[1] in gone]:
            del self._cache[key]
        self._found.forget(gone)

    def restore(self) -> int:
        """Put back what was found in each file that still holds our value; how many were written.

        A file that another hand has changed since is left alone.
        """
        by_depth: dict[int, list[Wanted]] = {}
        for (knob, folder), (before, ours) in self._found.entries():
            if not self._still(KNOBS[knob], folder, ours):
                continue
            if not before:  # no set of its own
                self.tree.path(KNOBS[knob], folder).write_text("\n")
                continue
            by_depth.setdefault(folder.count("/") if folder else -1, []).append(Wanted(knob, folder, before))
        counts = self.update_levels([by_depth[depth] for depth in sorted(by_depth)], cached=False)
        self._found.clear()
        return counts.get(Done.WRITTEN, 0)

    def _due(self, key: tuple[str, str], value: str) -> bool:
        held = self._cache.get(key)
        return held is None or held[0] != value or self._clock_ns() - held[1] > FORCE_AFTER_S * 1e9

    def _write(self, wanted: Wanted) -> Done:
        knob, folder, value = KNOBS[wanted.knob], wanted.folder, wanted.value
        if not self.supports(knob.name, folder):
            if knob.v2 is Support.TARGET and self.tree.version == 2 and not self._folder_exists(knob, folder):
                return Done.GONE
            return Done.UNSUPPORTED
        if not knob.accepts(value):
            return self._refuse(wanted, "the value does not fit")
        try:
            text = self._spelled(knob, value)
            before = self._current(knob, folder)
            if self._holds(knob, before, text):
                self._found.adopt((knob.name, folder), value)
                return Done.SAME
            found = self._v1_words(knob, folder, before)
            _put(self.tree.file(knob, folder), text)
        except (FileNotFoundError, NotADirectoryError):
            return Done.GONE
        except OSError as error:
            if error.errno == 19:  # ENODEV: the cgroup was removed while its file was open
                return Done.GONE
            return self._refuse(wanted, str(error))
        except OutOfRange as error:
            return self._refuse(wanted, str(error))
        self.written += 1
        if knob.kind is not Kind.DEVICE and knob.name != "cgroup.procs":
            self._found.remember((knob.name, folder), found, value)
        return Done.WRITTEN

    def _folder_exists(self, knob: Knob, folder: str) -> bool:
        return self.tree.path(knob, folder).parent.is_dir()

    def _refuse(self, wanted: Wanted, why: str) -> Done:
        self.refused += 1
        if (text := f"{wanted.knob} {why}") not in self._said:
            self._said.add(text)
            log.warning(
                "a cgroup file is not written", extra={"knob": wanted.knob, "folder": wanted.folder, "why": why}
            )
        return Done.REFUSED

    def _current(self, knob: Knob, folder: str) -> str:
        file = self.tree.file(knob, folder)
        if knob.kind is Kind.CPUS and self.tree.version == 2:
            file += ".effective"
        return _get(file)

    def _spelled(self, knob: Knob, value: str) -> str:
        if self.tree.version == 2:
            if knob.kind is Kind.SHARES:
                return str(weight(int(value)))
            if knob.kind in {Kind.UNLIMITED, Kind.QUOTA} and value == "-1":
                return cgroup_files.MAX
        return value

    def _v1_words(self, knob: Knob, folder: str, text: str) -> str:
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

    def _still(self, knob: Knob, folder: str, value: str) -> bool:
        try:
            return self._holds(knob, self._current(knob, folder), self._spelled(knob, value))
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

    def _loosened(self, wanted: Wanted) -> Wanted | None:
        """The first pass's value: None when the knob is not merged, an empty one when its turn is the second pass."""
        knob = KNOBS[wanted.knob]
        if knob.kind not in {Kind.QUOTA, Kind.LARGER, Kind.CPUS}:
            return None
        keep = wanted._replace(value="")
        if not self.supports(knob.name, wanted.folder) or not knob.accepts(wanted.value):
            return None
        try:
            current = self._current(knob, wanted.folder)
            if knob.kind is Kind.CPUS:
                old, new = parse_cpus(current), parse_cpus(wanted.value)
                return keep if new <= old else wanted._replace(value=cpu_list(old | new))
            grows = min(cgroup_files.limit(wanted.value), UNLIMITED) > cgroup_files.limit(current)
        except (OSError, ValueError, BadCpuList):
            return keep
        return wanted if grows else keep


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
    """Write a file of the kernel's: at once, and only one that is there.

    Raises:
        OSError: it is not there, or the kernel does not take it.
    """
    fd = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
