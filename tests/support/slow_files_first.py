"""Runs the files that take longest first, so that no worker is left with a long file at the end.

Files are the unit that pytest-xdist hands out here (`--dist loadfile`). After a change of the long ones, renew the list
from the sums of `make test TESTS="--durations=0"`.
"""

from pathlib import PurePath

import pytest

LONGEST_FIRST = (
    "node/test_overcommit.py",
    "chaos/test_kills.py",
    "parity/test_parity.py",
    "integration/cli/test_up.py",
    "e2e/test_shadow.py",
    "integration/cli/test_doctor.py",
    "e2e/test_up_on_kube.py",
    "integration/gateway/test_service.py",
    "integration/cli/test_demo.py",
    "integration/cli/test_embedded.py",
    "integration/audit/test_client.py",
    "integration/cli/test_bench_audit_relay.py",
    "unit/scheduler/test_refused_classes.py",
    "parity/test_quota_model.py",
    "e2e/test_webhooks_on_kube.py",
    "cluster/test_cluster.py",
    "unit/scheduler/test_preemption.py",
    "integration/gateway/test_watch.py",
    "integration/cli/test_events_and_audit.py",
    "e2e/test_quota_on_kube.py",
    "e2e/test_descheduling_on_kube.py",
    "integration/log/test_server_faults.py",
    "integration/cli/test_bench_takeover.py",
    "integration/cli/test_bench_e2e.py",
    "integration/k8s/test_system.py",
    "integration/gateway/test_short_lists.py",
    "integration/audit/test_relay.py",
    "unit/scheduler/test_evaluation_with_one_more_pod.py",
    "integration/quota_ledger/test_charging.py",
    "integration/log/test_digest_chain.py",
    "e2e/test_published_yaml.py",
    "e2e/test_extender.py",
    "e2e/test_volumes_on_kube.py",
    "e2e/test_hot_node.py",
    "e2e/test_published_guides_on_kube.py",
    "chaos/test_overcommit_kills.py",
    "integration/log/test_lock.py",
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
