"""Classes of HTB, the kernel's hierarchical token bucket, as commands for tc."""

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
