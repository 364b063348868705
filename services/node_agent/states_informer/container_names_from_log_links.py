"""Names of containers by id, from the kubelet's links to their logs. Source: spec/node-agent.md 1.2."""

import os
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple

_LOG = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log").fullmatch


class LoggedContainer(NamedTuple):
    """A container by the kubelet's link to its log.

    Attributes:
        pod: `namespace/name`.
        pod_uid: empty where the link does not show it.
        started_ns: about its start, nanoseconds since the epoch.
    """

    pod: str
    container: str
    pod_uid: str
    started_ns: int


def started_since(
    logs: Path, names: Mapping[str, tuple[str, str]], since_ns: int, known: Container[str]
) -> dict[str, LoggedContainer]:
    """Returns by id the containers that started since an instant, without those that are known.

    Args:
        names: as `container_names` returns them.
    """
    found = {}
    for cid, (pod, container) in names.items():
        if cid in known:
            continue
        link = logs / f"{pod.partition('/')[2]}_{pod.partition('/')[0]}_{container}-{cid}.log"
        try:
            started_ns = link.lstat().st_mtime_ns
            target = link.readlink() if started_ns >= since_ns else Path()
        except OSError:
            continue  # removed meanwhile, or no link
        if started_ns >= since_ns:
            uid = target.parent.parent.name.rpartition("_")[2]
            found[cid] = LoggedContainer(pod, container, uid, started_ns)
    return found


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
