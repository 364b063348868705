"""The collector on this machine's own /proc and cgroups, with processes that burn and hold memory."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.bench.agent_pod_cgroups import ROOT, PodCgroups
from services.node_agent.collectors.usage_collector import Collector
from services.node_agent.collectors.usage_sample_types import UsageSnapshot
from tests.support.waiting import wait_until

MIB = 2**20


@pytest.fixture
def collector(cgroups: PodCgroups) -> Iterator[Collector]:
    made = Collector(Path("/proc"), ROOT, cgroups.parent, interval_s=1, clock_ns=time.monotonic_ns)
    yield made
    made.close()


def test_a_burning_pod_uses_what_it_burns_and_the_rest_is_system(cgroups: PodCgroups, collector: Collector) -> None:
    # The kernel counts a cgroup's pages in batches for each CPU, so each holds a few MiB more than requested below.
    burning = cgroups.add(qos="besteffort", burn_ms=900, held_mib=72)
    idle = cgroups.add(qos="burstable", held_mib=1)
    guaranteed = cgroups.add(qos="", held_mib=24)

    def shown(found: UsageSnapshot) -> bool:
        # Other processes may take the cpu from it for a while, so half of its usage will do. The kernel counts
        # a page when it is touched, and a process that has just begun has not touched all of them.
        if found.pods.keys() != {burning, idle, guaranteed} or found.best_effort is None:
            return False
        busy, calm = found.pods[burning], found.pods[guaranteed]
        memory = (busy.memory or 0, found.best_effort.memory or 0)  # read one after the other
        return (busy.cpu or 0) > 450_000 and min(memory) > 64 * MIB and (calm.memory or 0) > 16 * MIB

    found = wait_until(collector.collect, holds=shown)
    pods = found.pods
    assert found.node is not None
    assert found.system is not None
    assert found.best_effort is not None
    assert found.node.cpu is not None
    assert found.node.memory is not None
    assert (pods[burning].cpu or 0) > (pods[idle].cpu or 0)
    assert found.system.cpu == max(0, found.node.cpu - sum(pod.cpu or 0 for pod in pods.values()))
    assert (pods[guaranteed].memory or 0) < 64 * MIB
    assert (found.best_effort.memory or 0) >= 64 * MIB
    assert found.system.memory == found.node.memory - sum(pod.memory or 0 for pod in pods.values())


def test_a_pod_that_ends_is_gone_and_one_of_its_name_is_new(cgroups: PodCgroups, collector: Collector) -> None:
    first, second = cgroups.add(burn_ms=100), cgroups.add()
    wait_until(collector.collect, holds=lambda found: set(found.pods) == {first, second})
    cgroups.remove(first)
    assert set(collector.collect().pods) == {second}
    assert collector.pods == 1
    cgroups.add(uid=first)
    assert first not in collector.collect().pods  # primes
    assert first in wait_until(collector.collect, holds=lambda found: first in found.pods).pods


def test_a_pod_recreated_between_two_cycles_primes_again(cgroups: PodCgroups, collector: Collector) -> None:
    uid = cgroups.add(burn_ms=500)
    wait_until(collector.collect, holds=lambda found: uid in found.pods)
    cgroups.remove(uid)
    cgroups.add(uid=uid)
    assert uid not in collector.collect().pods  # the open files are those of the removed cgroup
    assert uid in wait_until(collector.collect, holds=lambda found: uid in found.pods).pods


def test_a_missing_cgroup_tree_is_searched_again(cgroups: PodCgroups) -> None:
    without_pods = Collector(Path("/proc"), ROOT, f"{cgroups.parent}/none", interval_s=1, clock_ns=time.monotonic_ns)
    found = wait_until(without_pods.collect, holds=lambda found: found.node is not None)
    assert (found.pods, found.system) == ({}, found.node)
    without_pods.close()
