"""Which CPUs an allocation gets: the worked examples 1 to 6 of spec/scheduler-core.md 4.11, and what always holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.plugins.node_numa_resource.cpu_accumulator import (
    AllocatedCpu,
    NotEnoughCpus,
    Take,
    take_cpus,
    take_preferred,
)
from services.scheduler.plugins.node_numa_resource.cpu_topology import CpuTopology
from services.scheduler.plugins.node_numa_resource.cpus_permitted_by_bind_policy import satisfies, usable_cpus
from shared.domain.cpu_set import cpu_list, parse_cpus

T16 = CpuTopology((cpu, cpu // 2, cpu // 8, cpu // 8) for cpu in range(16))
"""2 sockets with a NUMA node, 4 cores and 8 CPUs each; the CPUs of a core are neighbours."""

FULL, SPREAD = "FullPCPUs", "SpreadByPCPUs"
MOST, LEAST = "MostAllocated", "LeastAllocated"


@pytest.mark.parametrize(
    ("take", "used", "expected"),
    [
        pytest.param(Take(4, FULL, strategy=LEAST), "", "0-3", id="1-full"),
        pytest.param(Take(4, SPREAD, strategy=LEAST), "", "0,2,4,6", id="1-spread"),
        pytest.param(Take(4, FULL, strategy=LEAST), "0-3", "8-11", id="2-least"),
        pytest.param(Take(4, FULL, strategy=MOST), "0-3", "4-7", id="2-most"),
        pytest.param(Take(4, FULL, strategy=LEAST), "0,2,4,8,10,12", "6-7,14-15", id="3"),
        pytest.param(Take(6, FULL, strategy=LEAST), "0-3,8-11", "4-7,12-13", id="4"),
        pytest.param(Take(10, FULL, strategy=LEAST), "8-11", "0-7,12-13", id="5-full"),
        pytest.param(Take(10, SPREAD, strategy=LEAST), "8-11", "0-7,12,14", id="5-spread"),
        pytest.param(Take(10, SPREAD, strategy=LEAST), "", "0-4,6,8,10,12,14", id="5-spread-empty"),
        pytest.param(Take(3, FULL, strategy=LEAST), "", "0-2", id="odd"),
    ],
)
def test_a_worked_example_takes_its_cpus(take: Take, used: str, expected: str) -> None:
    allocated = {cpu: AllocatedCpu(1, "") for cpu in parse_cpus(used)}
    assert cpu_list(take_cpus(T16, take, T16.all - allocated.keys(), allocated)) == expected


def test_example_6_pods_of_one_exclusive_policy_keep_apart_by_core() -> None:
    allocated = {cpu: AllocatedCpu(1, "PCPULevel") for cpu in (0, 2)}
    take = Take(4, SPREAD, exclusive="PCPULevel", strategy=LEAST)
    assert cpu_list(take_cpus(T16, take, T16.all - allocated.keys(), allocated)) == "8,10,12,14"


def test_example_6_pods_of_one_exclusive_policy_keep_apart_by_numa_node() -> None:
    allocated = {0: AllocatedCpu(1, "NUMANodeLevel"), 8: AllocatedCpu(1, ""), 9: AllocatedCpu(1, "")}
    take = Take(2, SPREAD, exclusive="NUMANodeLevel", strategy=MOST)
    assert cpu_list(take_cpus(T16, take, T16.all - allocated.keys(), allocated)) == "10,12"


def test_exclusion_is_ignored_when_nothing_else_is_left() -> None:
    allocated = {0: AllocatedCpu(1, "NUMANodeLevel"), 8: AllocatedCpu(1, "NUMANodeLevel")}
    take = Take(14, FULL, exclusive="NUMANodeLevel", strategy=LEAST)
    assert take_cpus(T16, take, T16.all - allocated.keys(), allocated) == T16.all - allocated.keys()


def test_preferred_cpus_come_first_and_the_rest_from_the_others() -> None:
    take = Take(4, FULL, strategy=LEAST)
    assert cpu_list(take_preferred(T16, take, T16.all, parse_cpus("14-15"), {})) == "0-1,14-15"


cpu_sets = st.frozensets(st.integers(0, 15))
takes = st.builds(
    Take,
    need=st.integers(0, 16),
    bind=st.sampled_from((FULL, SPREAD, "")),
    exclusive=st.sampled_from(("", "PCPULevel", "NUMANodeLevel")),
    strategy=st.sampled_from((MOST, LEAST)),
    max_pods=st.integers(1, 2),
)


@given(takes, cpu_sets, st.dictionaries(st.integers(0, 15), st.sampled_from(("", "PCPULevel", "NUMANodeLevel"))))
def test_what_is_taken_was_available_and_is_as_much_as_needed(
    take: Take, available: frozenset[int], exclusive: dict[int, str]
) -> None:
    allocated = {cpu: AllocatedCpu(1, policy) for cpu, policy in exclusive.items()}
    if take.need > len(available):
        with pytest.raises(NotEnoughCpus):
            take_cpus(T16, take, available, allocated)
        return
    taken = take_cpus(T16, take, available, allocated)
    assert taken <= available
    odd = take.bind == FULL and take.need % T16.cpus_per_core  # upstream may round such a need up to a core
    assert len(taken) == take.need or (odd and len(taken) == take.need + 1)


@given(st.sampled_from((FULL, SPREAD)), cpu_sets)
def test_what_a_required_policy_leaves_obeys_it(policy: str, available: frozenset[int]) -> None:
    usable = usable_cpus(T16, policy, available)
    assert usable <= available
    assert satisfies(T16, policy, usable)
