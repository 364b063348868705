"""GpuFragmentation and GpuPacking: their kernel equals a scalar twin, and pods go where they leave the least unused."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.simulate.policies import PACKING, packing_text
from services.scheduler.kernels.gpu_fragments import MIDDLE, STEPS, UNFIT, UNKNOWN, fragment_scores
from services.scheduler.plugins.gpu_packing.args import BadPackingArgs, read_packing_args
from services.scheduler.plugins.gpu_packing.plugin import levels_of
from shared.kube.device import GPU_MODEL
from tests.support.device_machines import GPU, devices, gpu_node, gpu_pod
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, placements, use

Type = tuple[int, int, int, int, int, int]

MIX = (
    {"cpuMilli": 4000, "gpus": 1, "share": 100, "pods": 50},
    {"cpuMilli": 1000, "gpus": 1, "share": 50, "pods": 50},
)


def fragments(cpu: int, memory: int, free: Sequence[int], workload: Sequence[Type], *, packs: bool) -> int:
    """The formula of the kernel, for GPUs of any model."""
    left, total = sum(free), 0
    for cpu_, memory_, number, share, _, pods in workload:
        fit = 0
        if number:
            by_gpu = sum(each // share for each in free) if number == 1 else sum(e >= share for e in free) // number
            fit = min(by_gpu, cpu // cpu_ if cpu_ else 1 << 40, memory // memory_ if memory_ else 1 << 40)
        if packs:
            total += pods * (left - fit * number * share)
        else:
            total += pods * (sum(each for each in free if each < share) if fit else left)
    if packs:
        gpu = sum(n * share * pods for _, _, n, share, _, pods in workload)
        of_gpu_pods = sum(c * pods for c, _, n, _, _, pods in workload if n)
        total += 2 * sum(each[5] for each in workload) * max(0, left - cpu * gpu // max(of_gpu_pods, 1))
    return total


TYPES = st.tuples(
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 3),
    st.sampled_from((25, 30, 50, 100)),
    st.just(-1),
    st.integers(1, 9),
)


@given(
    st.integers(0, 16), st.integers(0, 16), st.lists(st.sampled_from((0, 20, 25, 50, 80, 100)), max_size=4),
    st.lists(TYPES, min_size=1, max_size=4), TYPES, st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(200), deadline=None)
def test_the_kernel_equals_its_scalar_twin(
    cpu: int, memory: int, free: list[int], workload: list[Type], pod: Type, packs: bool
) -> None:
    table = np.array(workload, np.int64)
    with_gpus = table[table[:, 2] > 0]
    fed = (with_gpus[:, 2:4].prod(axis=1) * with_gpus[:, 5]).sum(), (with_gpus[:, 0] * with_gpus[:, 5]).sum()
    scores, known = np.zeros(1, np.int64), np.full((1, 3), UNKNOWN, np.int64)
    for _ in range(2):  # with fragments that are computed, and that are known
        fragment_scores(
            scores, np.zeros(1, np.int64), np.array([cpu]), np.array([memory]), np.array([free + [0] * (4 - len(free))]),
            np.array([(len(free), 0)]), np.array(pod[:4]), table, np.array((*fed, table[:, 5].sum()), np.int64), known,
            packs,
        )  # fmt: skip
        assert_score(scores[0], cpu, memory, free, workload, pod, packs=packs)


def assert_score(
    score: int, cpu: int, memory: int, free: list[int], workload: list[Type], pod: Type, *, packs: bool
) -> None:
    number, share = pod[2], pod[3]
    fullest = sorted(
        (place for place, each in enumerate(free) if each >= share), key=lambda place: (free[place], place)
    )
    if cpu < pod[0] or memory < pod[1] or len(fullest) < number:
        assert score == UNFIT
        return
    after = [each - share * (place in fullest[:number]) for place, each in enumerate(free)]
    before = fragments(cpu, memory, free, workload, packs=packs)
    then = fragments(cpu - pod[0], memory - pod[1], after, workload, packs=packs)
    pods = sum(each[5] for each in workload)
    assert score == max(MIDDLE - (then - before) * STEPS // pods, UNFIT + 1)


@pytest.mark.parametrize("policy", PACKING)
def test_a_share_joins_a_share_on_whatever_node(policy: str) -> None:
    world = World()
    use(world, packing_text(policy, GPU_MODEL, MIX))
    for name in "abc":
        world.observe(devices(name, 2, rdma=0))
        world.add_node(gpu_node(name, 2))
    for name in ("p", "q"):
        world.add_pod(gpu_pod(name, {GPU: "50"}))
        world.read()
        world.cycles()
    nodes = {record.placed_node for record in world.view.pods.values()}
    assert len(nodes) == 1


def test_a_node_whose_cpu_cannot_feed_its_cards_is_filled_first_with_pods_that_need_little() -> None:
    world = World()
    use(world, packing_text("packing", GPU_MODEL, MIX))
    for name, cpu in (("starved", "5"), ("fed", "64")):
        world.observe(devices(name, 2, rdma=0))
        world.add_node(gpu_node(name, 2, cpu=cpu))
    world.add_pod(gpu_pod("p", {GPU: "100"}))
    world.read()
    assert placements(world.cycles()) == {"p": "starved"}


def test_fgd_decides_ties_in_one_order_for_all_pods() -> None:
    chosen = set()
    for name in "pqrstuvw":
        world = World()
        use(world, packing_text("fgd", GPU_MODEL, MIX))
        for each in "abc":
            world.observe(devices(each, 2, rdma=0))
            world.add_node(gpu_node(each, 2))
        world.add_pod(gpu_pod(name, {GPU: "100"}))
        world.read()
        chosen.add(placements(world.cycles())[name])
    assert len(chosen) == 1


def test_fgd_has_the_hundred_levels_of_its_published_form() -> None:
    gains = np.arange(-60_000, 60_000, 37)
    assert levels_of(gains).tolist() == [int(100 / (1 + math.exp(-gain / 10_000))) for gain in gains.tolist()]
    assert levels_of(np.array([-1, 0])).tolist() == [49, 50]


def test_a_wrong_argument_is_refused_with_its_place() -> None:
    with pytest.raises(BadPackingArgs, match=r"workload\[0\].share is 0"):
        read_packing_args({"workload": [{"share": 0}]}, "args")
    with pytest.raises(BadPackingArgs, match="unknown field"):
        read_packing_args({"work": []}, "args")
