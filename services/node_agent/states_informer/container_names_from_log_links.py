"""Names of containers by id, from the kubelet's links to their logs. Source: spec/node-agent.md 1.2."""

import os
import re
from pathlib import Path

_LOG = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log").fullmatch


def container_names(logs: Path) -> dict[str, tuple[str, str]]:
    """Returns id of a container -> (`namespace/name` of its pod, its name), from the kubelet's links to logs.

    The sandbox has none, and neither has a container that the kubelet has removed.
    """
    try:
        names = os.listdir(logs)  # noqa: PTH208  half the cost of iterdir
    except OSError:
        return {}
    found = {}
    for name in names:
        if match := _LOG(name):
            found[match["id"]] = (f"{match['namespace']}/{match['pod']}", match["container"])
    return found
