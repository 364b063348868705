"""Addresses of a process's network namespace, from /proc."""

import ipaddress
import re
from pathlib import Path

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.kernel.cgroup_processes import Processes

_HOST = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


def addresses(proc: Path, pid: int) -> tuple[str, ...]:
    """Returns the IPv4 and IPv6 addresses of a process's network namespace, without loopback and link-local ones.

    Empty when the process has ended.
    """
    found: set[str] = set()
    try:
        found.update(_HOST.findall((proc / f"{pid}/net/fib_trie").read_text()))
        for line in (proc / f"{pid}/net/if_inet6").read_text().splitlines():
            found.add(str(ipaddress.IPv6Address(int(line.split()[0], 16))))
    except (OSError, ValueError, IndexError):
        pass  # it has ended, or the kernel has one family alone
    usable = (ipaddress.ip_address(text) for text in found)
    return tuple(sorted(str(one) for one in usable if not one.is_loopback and not one.is_link_local))


def addresses_of_pod(each: PodCgroups, processes: Processes) -> tuple[str, ...]:
    """Returns the addresses of a pod with a network of its own; none while it has no process."""
    for folder in each.containers.values():
        for pid in processes.of(folder)[:1]:
            if found := addresses(processes.proc, pid):
                return found
    return ()
