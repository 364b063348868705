"""Bodies of pods for a real node, and requests to the program that runs in them."""

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

from cli.dev.node.kubelet_node import IMAGE
from cli.processes.free_ports import is_free
from tests.support.waiting import wait_until


def pod(
    name: str,
    *arguments: str,
    requests: Mapping[str, str],
    limits: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Returns a pod of one container, `main`, that a real node can start.

    Args:
        arguments: of the program: `-listen HOST:PORT`, `-burn CORES`, `-hold MIB`.
        spec: more of its spec.
    """
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": list(arguments),
        "resources": {"requests": dict(requests), "limits": dict(limits or {})},
    }
    whole = {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        **spec,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": dict(labels or {})}, "spec": whole}


def wait_until_it_listens(port: int) -> None:
    """Waits for a program: its container counts as ready a moment before it listens."""
    wait_until(lambda: not is_free(port), f"a program that listens on port {port}")


def get_json(port: int, path: str, *, post: bool = False, timeout_s: float = 30) -> Any:
    """Returns the response of the program on this port; None when it is empty.

    Raises:
        OSError: it does not listen.
    """
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="POST" if post else "GET")
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        text = answer.read()
    return json.loads(text) if text else None
