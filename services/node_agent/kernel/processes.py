"""Processes of a cgroup, and their addresses from /proc."""

import ipaddress
import re
from pathlib import Path

_HOST = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


class Processes:
    """Reads one node's cgroups and procfs.

    Attributes:
        proc: where procfs is mounted.
    """

    def __init__(self, root: Path, proc: Path) -> None:
        self.proc = proc
        self._v2 = (root / "cgroup.controllers").exists()
        self._base = root if self._v2 else root / "cpu"

    def of(self, folder: str, *, threads: bool = False) -> list[int]:
        """Returns the ids of a cgroup's processes, or threads; none when it is gone."""
        file = ("cgroup.threads" if self._v2 else "tasks") if threads else "cgroup.procs"
        try:
            return sorted(int(pid) for pid in (self._base / folder / file).read_text().split())
        except (OSError, ValueError):
            return []

    def addresses(self, pid: int) -> tuple[str, ...]:
        """Returns the IPv4 and IPv6 addresses of a process's network namespace, without loopback and link-local ones.

        Empty when the process has ended.
        """
        found: set[str] = set()
        try:
            found.update(_HOST.findall((self.proc / f"{pid}/net/fib_trie").read_text()))
            for line in (self.proc / f"{pid}/net/if_inet6").read_text().splitlines():
                found.add(str(ipaddress.IPv6Address(int(line.split()[0], 16))))
        except (OSError, ValueError, IndexError):
            pass  # it has ended, or the kernel has one family alone
        usable = (ipaddress.ip_address(text) for text in found)
        return tuple(sorted(str(one) for one in usable if not one.is_loopback and not one.is_link_local))
