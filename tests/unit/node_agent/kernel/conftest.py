"""The network of a node and a pod, for the tests of limits and shares."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.node_agent.kernel.pod_network import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("tc", "ip", "nsenter"))):
        pytest.skip("no network name space may be made here, or tc, ip and nsenter are not installed")
    try:
        made = Machine(tmp_path, f"koord{os.getpid()}")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network name space can be made here: {error.stderr.strip()}")
    yield made
    made.close()
