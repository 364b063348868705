"""One containerd of this project's node, with the image of the tests in it."""

import os
import socket
import subprocess
from pathlib import Path

from cli.dev.node.config_files import Programs, write_containerd
from cli.dev.node.container_image import write_image
from cli.dev.node.linux_namespaces import Space
from cli.processes.child_process import Process
from shared.errors import KoordError

SOCKET = "containerd.sock"


def start_containerd(folder: Path, space: Space, have: Programs, image: str, within_s: float) -> Process:
    """Starts containerd with its state and its socket in a folder; returns when the image is in it.

    Raises:
        ProgramFailed: it did not come up within so many seconds.
        KoordError: it does not import the image.
    """
    config = write_containerd(folder, have, image)
    path = f"{have.shim.parent}:{have.runc.parent}:{os.environ.get('PATH', '')}"
    containerd = space.process("containerd", [have.containerd, f"--config={config}"], os.environ | {"PATH": path})
    containerd.start()
    containerd.wait_until(lambda: listens(folder / SOCKET), within_s)
    archive = write_image(folder / "workload.tar", have.workload, [image])
    command: list[str | Path] = [have.ctr, f"--address={folder / SOCKET}", "--namespace=k8s.io", "images", "import"]
    command += ["--local", "--platform=linux/amd64", archive]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KoordError(f"containerd does not import the test's image: {done.stderr.strip()}")
    return containerd


def listens(path: Path) -> bool:
    """Reports whether a program serves a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
