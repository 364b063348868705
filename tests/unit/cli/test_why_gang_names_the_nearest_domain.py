"""`koord why gang`: the network domain that came closest is taken from the refusal of the member that failed the gang."""

import msgspec

from cli.scheduling.waiting_answers import PendingPod, Refusal
from cli.scheduling.why_gang import _nearest_domain
from services.scheduler.plugins.registry import text
from shared.events.scheduling import CycleDecided
from tests.support.scheduling_world import World
from tests.unit.scheduler.test_gangs_in_network_domains import TWO_PER_CPU, job, spec, world_of


def refused(world: World) -> PendingPod:
    """The first member of the gang, with the reasons that its cycle has recorded."""
    [decided] = [each.event for each in world.cycle() if isinstance(each.event, CycleDecided)]
    reasons = [
        Refusal(each.plugin, each.code, text(each.code, each.detail), each.detail, each.nodes)
        for each in decided.classes[decided.pods[0].class_index].rejected
    ]
    plain: dict[str, object] = dict.fromkeys(PendingPod.__struct_fields__, 0) | {
        field.name: "" for field in msgspec.structs.fields(PendingPod) if field.type is str
    }
    return msgspec.convert(
        plain | {"refused_by": reasons, "short": {}, "estimated_start": None}, PendingPod, from_attributes=True
    )


def test_the_nearest_domain_is_that_of_the_refusal() -> None:
    world = world_of(TWO_PER_CPU)
    job(world, 9, spec(("rack", "MustGather")))
    assert _nearest_domain(refused(world)) == "no rack with capacity for 9 pods: the nearest is rack/R3 with 8"


def test_a_gang_that_fails_for_another_reason_names_no_domain() -> None:
    world = world_of(TWO_PER_CPU)
    job(world, 2, spec(("pod", "MustGather")))
    assert _nearest_domain(refused(world)) == ""
