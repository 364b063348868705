"""The record that a pod of a cycle refers to is true of the nodes as this pod found them: which passed, and why the
others did not."""

from shared.events.scheduling import ClassEvaluated, CycleDecided
from shared.kube.pod import Affinity, PodAffinity, PodAffinityTerm
from shared.kube.selectors import LabelSelector
from tests.support.scheduling_world import World, cycles_of, node, pod

ZONE = "zone"
HOST = "host"


def near(app: str) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(required=(_term(app),)))


def away_from(app: str) -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(required=(_term(app),)))


def _term(app: str) -> PodAffinityTerm:
    return PodAffinityTerm(topology_key=ZONE, label_selector=LabelSelector(match_labels={"app": app}))


def two_zones() -> World:
    world = World()
    world.add_node(node("n0", cpu="2", labels={ZONE: "a", HOST: "n0"}))
    world.add_node(node("n1", cpu="8", labels={ZONE: "b", HOST: "n1"}))
    world.add_pod(pod("db", cpu="1", on="n0", phase="Running", labels={"app": "db"}))
    world.read()
    return world


def records(world: World) -> tuple[CycleDecided, dict[str, tuple[str, ClassEvaluated]]]:
    """The cycle, and pod -> (its node, the record that it refers to)."""
    [cycle] = cycles_of(world.cycle())
    return cycle, {each.pod_uid: (each.node, cycle.classes[each.class_index]) for each in cycle.pods}


def codes(evaluated: ClassEvaluated) -> dict[str, int]:
    return {each.code: each.nodes for each in evaluated.rejected}


def test_a_node_that_became_feasible_within_the_cycle_is_feasible_in_the_record_of_the_pod_that_went_there() -> None:
    world = two_zones()
    for each in (
        pod("f0", cpu="1", affinity=near("db")),
        pod("db2", cpu="1", labels={"app": "db"}, selector={HOST: "n1"}),
        pod("f1", cpu="1", affinity=near("db")),
    ):
        world.add_pod(each)
    world.read()
    _, found = records(world)
    assert {name: place for name, (place, _) in found.items()} == {"f0": "n0", "db2": "n1", "f1": "n1"}
    assert [best.node for best in found["f0"][1].best] == ["n0"]
    assert [best.node for best in found["f1"][1].best] == ["n1"]
    assert codes(found["f1"][1]) == {"InsufficientResource": 1}


def test_a_pod_refused_for_another_reason_than_the_first_of_its_class_has_a_record_of_its_own() -> None:
    world = two_zones()
    for each in (
        pod("r0", cpu="1", labels={"app": "r"}, affinity=near("cache")),
        pod("shy", cpu="1", labels={"app": "cache"}, affinity=away_from("r"), selector={HOST: "n1"}),
        pod("r1", cpu="1", labels={"app": "r"}, affinity=near("cache")),
        pod("r2", cpu="1", labels={"app": "r"}, affinity=near("cache")),
    ):
        world.add_pod(each)
    world.read()
    cycle, found = records(world)
    assert {name: place for name, (place, _) in found.items()} == {"r0": "", "shy": "n1", "r1": "", "r2": ""}
    assert codes(found["r0"][1]) != codes(found["r1"][1])
    assert found["r1"] == found["r2"]
    assert len(cycle.classes) == 3, "equal records are recorded once"
