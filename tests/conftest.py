"""Fixtures for all tests, and a folder for each session of them."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import hypothesis
import pytest

from cli.processes.free_ports import FIRST, LAST, RANGE
from shared.runtime.garbage_collection import collect_seldom

# A failed assert of a helper shows its values, as one of a test does. `tests` itself is imported before this line.
pytest.register_assert_rewrite(
    *(f"tests.{folder.name}" for folder in Path(__file__).parent.iterdir() if folder.is_dir())
)
pytest_plugins = (
    "tests.servers",
    "tests.cluster.fixtures",
    "tests.node.real_node",
    "tests.support.allowed_skips",
    "tests.support.slow_files_first",
)


_TEMP_ROOT = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Give the session a temporary root of its own, for templates and, where root runs it, for all that tests write.

    Pytest closes the root that all sessions of a user share to other users whenever a session begins, and a Postgres
    that root starts is another user: a second session would shut its servers out.
    """
    # A shell's job ignores Ctrl-C, and the commands under test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from tests.support import prepared_folders, warm_start
    from tests.support.hypothesis_examples import examples

    # A slow or busy machine is no fault of the code under test: neither an example nor making one has a time limit.
    any_machine = hypothesis.settings(
        max_examples=examples(100), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.register_profile("any-machine", any_machine)
    hypothesis.settings.load_profile("any-machine")
    warm_start.install()
    collect_seldom()  # a worker holds all test modules
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if worker:  # ports of their own: what one has chosen and does not listen on yet, another must not choose
        size = (LAST - FIRST) // workers
        first = FIRST + int(worker.removeprefix("gw")) * size
        os.environ[RANGE] = f"{first}-{first + size}"
        return
    config.stash[_TEMP_ROOT] = root = Path(tempfile.mkdtemp(prefix="koord-tests-"))
    os.environ[prepared_folders.ROOT] = str(root / "templates")
    if os.geteuid() == 0:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(root))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove the temporary root; after a failure it stays, for the logs of the servers are in it."""
    root = session.config.stash.get(_TEMP_ROOT, None)
    if root and exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(root, ignore_errors=True)
