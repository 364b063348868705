"""Node-wide kernel settings: written where they differ, restored at the end.

Source: spec/node-agent.md 3.8, 4.3, 4.8.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from services.node_agent.cgroup.original_values import OriginalValues

log = logging.getLogger(__name__)

FILE = "original-system-values.jsonl"
SCHED_CORE = "proc/sys/kernel/sched_core"
GROUP_IDENTITY = "proc/sys/kernel/sched_group_identity_enabled"
FEATURES = ("sys/kernel/debug/sched_features", "sys/kernel/debug/sched/features")
"""The scheduler's features, in older and newer kernels: words, those that are off with the prefix NO_."""
CORE_SCHED = "CORE_SCHED"


class KernelSettingsWriter:
    """Files below procfs (`proc/...`) and sysfs (`sys/...`)."""

    def __init__(self, proc: Path, sys: Path, state_dir: Path | None) -> None:
        self._roots = {"proc": proc, "sys": sys}
        self._original_values = OriginalValues(state_dir, FILE)
        self._original_values.load()
        self._logged: set[str] = set()

    def has(self, file: str) -> bool:
        """Reports whether this kernel has a setting."""
        return self._path(file).exists()

    def put(self, file: str, text: str) -> None:
        """Sets a file to a value, unless this kernel does not have the file."""
        path = self._path(file)
        try:
            before = path.read_text().strip()
            if before == text:
                self._original_values.adopt((file, ""), text)
                return
            path.write_text(text)
            self._original_values.remember((file, ""), before, text)
        except FileNotFoundError:
            return
        except OSError as error:
            self._warn_once(f"{file} cannot be set to {text}: {error}")

    def features(self, desired: Mapping[str, bool]) -> None:
        """Switches features of the scheduler; unknown ones are skipped. The kernel takes one word a write."""
        for name, on in sorted(desired.items()):
            file = next((file for file in FEATURES if self._feature(file, name)), None)
            if file is None:
                continue
            word, before = name if on else f"NO_{name}", self._feature(file, name)
            try:
                if before == word:
                    self._original_values.adopt((file, name), word)
                    continue
                self._path(file).write_text(word)
                self._original_values.remember((file, name), before, word)
            except OSError as error:
                self._warn_once(f"{file} does not take {word}: {error}")

    def enable_core_scheduling(self) -> None:
        """Lets core scheduling, not group identity, decide about sharing of cores.

        Kernels from kernel.org need no switch.
        """
        if self.has(GROUP_IDENTITY):
            self.put(GROUP_IDENTITY, "0")
        if self.has(SCHED_CORE):
            self.put(SCHED_CORE, "1")
        else:
            self.features({CORE_SCHED: True})

    def enable_group_identity(self) -> None:
        """Lets group identity decide about precedence on a core."""
        if self.has(GROUP_IDENTITY):
            self.put(SCHED_CORE, "0")
            self.put(GROUP_IDENTITY, "1")

    def release(self) -> None:
        """Restores settings that still hold our value."""
        for (file, feature), (before, ours) in self._original_values.entries():
            path = self._path(file)
            try:
                now = self._feature(file, feature) if feature else path.read_text().strip()
                if now == ours:
                    path.write_text(before)
            except OSError as error:
                self._warn_once(f"{file} cannot be put back: {error}")
        self._original_values.clear()

    def _feature(self, file: str, name: str) -> str:
        """Returns a feature as it is; empty when the file does not have it."""
        try:
            words = self._path(file).read_text().split()
        except OSError:
            return ""
        return next((word for word in (name, f"NO_{name}") if word in words), "")

    def _path(self, file: str) -> Path:
        root, _, rest = file.partition("/")
        return self._roots[root] / rest

    def _warn_once(self, text: str) -> None:
        """Logs a warning unless its text was logged before."""
        if text not in self._logged:
            self._logged.add(text)
            log.warning(text)
