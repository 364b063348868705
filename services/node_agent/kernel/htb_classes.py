"""Classes of HTB, the kernel's hierarchical token bucket, and filters by address, as commands for tc."""

import ipaddress

from services.node_agent.qos_manager.strategies.network_qos import MAJOR, ROOT_MINOR

LEAST_BITS = 8_000
"""HTB rejects a class without a rate."""


def htb_class(interface: str, minor: int, rate: int, ceil: int, prio: int, parent: int = ROOT_MINOR) -> str:
    """Returns the command that creates or changes a class.

    Args:
        rate, ceil: guaranteed and maximal bandwidth, bits a second.
        prio: classes with a lower one are offered spare bandwidth first.
        parent: minor of the class above; 0: none.
    """
    below = f"{MAJOR}:{parent:x}" if parent else f"{MAJOR}:"
    least, most = max(rate, LEAST_BITS), max(ceil, rate, LEAST_BITS)
    return (
        f"class replace dev {interface} parent {below} classid {MAJOR}:{minor:x} "
        f"htb rate {least}bit ceil {most}bit prio {prio}"
    )


def address_filter(device: str, parent: str, text: str, side: str, priorities: tuple[int, int], action: str) -> str:
    """Returns the command that sends the packets of an address to a class or elsewhere.

    Args:
        parent: that of the filter, as tc has it.
        text: the address.
        side: `src` or `dst`: which of a packet's addresses is compared.
        priorities: of the filters of IPv4 and of IPv6.
        action: what becomes of the packets, as tc has it.
    """
    address = ipaddress.ip_address(text)
    v4, v6 = priorities
    family, priority, match = ("ip", v4, "ip") if address.version == 4 else ("ipv6", v6, "ip6")
    return (
        f"filter add dev {device} {parent} protocol {family} prio {priority} "
        f"u32 match {match} {side} {address}/{address.max_prefixlen} {action}"
    )
