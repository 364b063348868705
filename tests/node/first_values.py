"""Starts containers whose program prints the values of its own cgroup as its first action."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cli.dev.node.kubelet_node import RealNode
from tests.node.koordstream_on_node import Site
from tests.node.pod_bodies import pod
from tests.support.waiting import until

ENDED = ("Succeeded", "Failed")


class Start(NamedTuple):
    """One start of a container.

    Attributes:
        container: the runtime's id.
        values: as its program printed them first.
    """

    container: str
    values: dict[str, str]


def body(name: str, count: int, requests: Mapping[str, str], *, stays: bool = False, **more: Any) -> dict[str, Any]:
    """Returns a pod of several containers with equal requests and limits, which print their values once.

    Args:
        stays: they run on; otherwise they end at once.
        more: as `pod` has it.
    """
    arguments = ("-limits", "-hold=1") if stays else ("-limits",)
    made = pod(name, *arguments, requests=requests, limits=requests, restartPolicy="Never", **more)
    (container,) = made["spec"]["containers"]
    made["spec"]["containers"] = [container | {"name": f"c{number}"} for number in range(count)]
    return made


async def first_values(there: Site, namespace: str, bodies: list[dict[str, Any]]) -> list[Start]:
    """Creates pods at once; returns the start of each container, and removes the pods."""
    names = [each["metadata"]["name"] for each in bodies]
    await asyncio.gather(*(there.created(namespace, each) for each in bodies))
    found = await asyncio.gather(*(_ended(there, namespace, name) for name in names))
    await removed(there, namespace, names)
    return [start for pod in found for start in await starts_of(there.node, pod)]


async def removed(there: Site, namespace: str, names: list[str]) -> None:
    """Deletes pods."""
    for name in names:
        await there.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")


async def starts_of(node: RealNode, pod: dict[str, Any]) -> list[Start]:
    """Returns the starts of a pod's containers, each of which has started once."""
    meta = pod["metadata"]
    folder = node.folder / "pods" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
    found = []
    for status in pod["status"]["containerStatuses"]:
        # A container counts as ready a moment before what its program has printed is in the file.
        file = folder / status["name"] / "0.log"
        line: str = await until(partial(_first_line, file), f"values in {file}")
        text = line.split(" ", 3)[3]  # instant, stream, whether it is whole, text
        found.append(Start(status["containerID"].removeprefix("containerd://"), json.loads(text)))
    assert len(found) == len(pod["spec"]["containers"])
    return found


def _first_line(file: Path) -> str:
    return next(iter(file.read_text().splitlines()), "")


async def _ended(there: Site, namespace: str, name: str) -> dict[str, Any]:
    async def ended() -> dict[str, Any] | None:
        found = await there.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return found if found["status"].get("phase") in ENDED else None

    done: dict[str, Any] = await until(ended, f"end of {name}", within_s=120)
    assert done["status"]["phase"] == "Succeeded", done["status"]
    return done
