"""The node's network interface: the one of the default route."""

from pathlib import Path


def default_interface(proc: Path) -> str:
    """Returns the network interface of the default route with the lowest metric; empty without one."""
    try:
        lines = (proc / "1/net/route").read_text().splitlines()[1:]
    except OSError:
        return ""
    routes = [fields for line in lines if len(fields := line.split()) > 7 and fields[1] == fields[7] == "00000000"]
    return min(routes, key=lambda fields: int(fields[6]))[0] if routes else ""
