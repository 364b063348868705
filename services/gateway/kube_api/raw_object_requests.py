"""Reads and writes of single objects as plain JSON, for objects that no event records."""

from typing import Any

import msgspec

from services.gateway.kube_api.api_errors import NotFound
from services.gateway.kube_api.client import MANAGER, KubeApi

Raw = dict[str, Any]


async def get_object(api: KubeApi, path: str, rule: str) -> Raw | None:
    """Returns an object; None where there is none.

    Args:
        rule: the verb and resource that a missing permission names.
    """
    try:
        found: Raw = msgspec.json.decode(await api.call("GET", path, rule))
    except NotFound:
        return None
    return found


async def put_object(api: KubeApi, path: str, body: Raw, stored: Raw | None, rule: str) -> None:
    """Creates the object, or replaces it if it still has the version that was read."""
    if stored is None:
        await api.call("POST", f"{path.rpartition('/')[0]}?fieldManager={MANAGER}", f"create {rule}", body)
        return
    body["metadata"] |= {"resourceVersion": stored["metadata"]["resourceVersion"]}
    await api.call("PUT", f"{path}?fieldManager={MANAGER}", f"update {rule}", body)
