"""Runs the files that take longest first, so that no worker is left with a long file at the end.

Files are the unit that pytest-xdist hands out here (`--dist loadfile`). After a change of the long ones, renew the list
from the sums of `make test TESTS="--durations=0"`.
"""

from pathlib import PurePath

import pytest

LONGEST_FIRST = (
    "node/test_overcommit.py",
    "chaos/test_kills.py",
    "integration/cli/test_up.py",
    "e2e/test_webhooks_on_kube.py",
    "parity/test_parity.py",
    "e2e/test_published_guides_on_kube.py",
    "e2e/test_quota_on_kube.py",
    "integration/cli/test_demo.py",
    "integration/gateway/test_watch.py",
    "e2e/test_shadow.py",
    "cluster/test_cluster.py",
    "integration/gateway/test_service.py",
    "chaos/test_overcommit_kills.py",
    "integration/log/test_server_faults.py",
    "e2e/test_volumes_on_kube.py",
    "parity/test_quota_model.py",
    "integration/cli/test_doctor.py",
    "e2e/test_hot_node.py",
    "integration/log/test_digest_chain.py",
    "unit/scheduler/test_refused_classes.py",
    "integration/log/test_lock.py",
    "integration/cli/test_bench_e2e.py",
    "unit/scheduler/test_preemption.py",
    "unit/scheduler/test_evaluation_with_one_more_pod.py",
    "unit/scheduler/test_affinity_and_spread.py",
    "unit/scheduler/test_scheduling_cycles.py",
)
"""Files below `tests`, the longest first. All others follow in the order of collection."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the tests by their file's place in the list; the order within a file does not change."""
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(_below_tests(item), len(places)))


def _below_tests(item: pytest.Item) -> str:
    return PurePath(item.nodeid.partition("::")[0]).as_posix().removeprefix("tests/")
