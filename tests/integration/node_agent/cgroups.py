"""Real pod cgroups on this machine, where they can be made."""

from collections.abc import Iterator

import pytest

from cli.bench.agent_pod_cgroups import NoCgroups, PodCgroups


@pytest.fixture
def cgroups() -> Iterator[PodCgroups]:
    """An empty kubepods tree; the test is skipped where none can be made."""
    tree = PodCgroups()
    try:
        tree.__enter__()
    except NoCgroups as error:
        pytest.skip(str(error))
    try:
        yield tree
    finally:
        tree.__exit__()
