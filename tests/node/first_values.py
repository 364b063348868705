"""Starts containers whose program prints the values of its own cgroup as its first action and ends."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from tests.node.koordstream_on_node import Site
from tests.node.pod_bodies import pod
from tests.support.waiting import until

ENDED = ("Succeeded", "Failed")


def body(name: str, count: int, requests: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """Returns a pod of several containers with equal requests and limits, which print their values once.

    Args:
        more: as `pod` has it.
    """
    made = pod(name, "-limits", requests=requests, limits=requests, restartPolicy="Never", **more)
    (container,) = made["spec"]["containers"]
    made["spec"]["containers"] = [container | {"name": f"c{number}"} for number in range(count)]
    return made


async def first_values(there: Site, namespace: str, bodies: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Creates pods at once; returns the printed values of each container, and removes the pods."""
    names = [each["metadata"]["name"] for each in bodies]
    await asyncio.gather(*(there.created(namespace, each) for each in bodies))
    found = await asyncio.gather(*(_printed(there, namespace, name) for name in names))
    for name in names:
        await there.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
    return [values for of_pod in found for values in of_pod]


async def _printed(there: Site, namespace: str, name: str) -> list[dict[str, str]]:
    async def ended() -> dict[str, Any] | None:
        found = await there.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return found if found["status"].get("phase") in ENDED else None

    done: dict[str, Any] = await until(ended, f"end of {name}", within_s=120)
    assert done["status"]["phase"] == "Succeeded", done["status"]
    folder = there.node.folder / "pods" / f"{namespace}_{name}_{done['metadata']['uid']}"
    printed = []
    for file in sorted(folder.glob("*/0.log")):
        (line,) = file.read_text().splitlines()
        printed.append(json.loads(line.split(" ", 3)[3]))  # instant, stream, whether it is whole, text
    assert len(printed) == len(done["spec"]["containers"])
    return printed
