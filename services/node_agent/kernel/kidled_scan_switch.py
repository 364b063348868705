"""Switches the kernel's scan for cold pages on (kidled, Anolis kernels with cgroup v1).

Source: spec/node-agent.md 3.14.
"""

import logging
from pathlib import Path

log = logging.getLogger(__name__)

PERIOD_S = 5
FILES = {"scan_period_in_seconds": str(PERIOD_S), "use_hierarchy": "1"}


class KidledScan:
    """Two switches below sysfs, restored at the end.

    Attributes:
        started: the kernel scans for cold pages, switched on by this agent.
    """

    def __init__(self, sys: Path) -> None:
        self.started = False
        self._folder = sys / "kernel/mm/kidled"
        self._found: dict[str, str] = {}

    def start(self) -> None:
        """Switches the scan on, if the kernel has it."""
        if not all((self._folder / name).exists() for name in FILES):
            return
        try:
            for name, value in FILES.items():
                before = (self._folder / name).read_text().strip()
                if before != value:
                    (self._folder / name).write_text(value)
                    self._found[name] = before
        except OSError as error:
            log.warning("the kernel does not scan for cold pages", extra={"why": str(error)})
            self.stop()
            return
        self.started = True

    def stop(self) -> None:
        """Restores the original values."""
        for name, before in self._found.items():
            try:
                (self._folder / name).write_text(before)
            except OSError as error:
                log.warning("a switch of kidled cannot be restored", extra={"file": name, "why": str(error)})
        self._found, self.started = {}, False
