"""Gangs and Reservations that the configuration in force does not read are found."""

from pathlib import Path

import yaml

from cli.doctor.check_unread_objects import about_unread_objects
from services.scheduler.configuration import config_drafts
from services.scheduler.explain.gang_status import IGNORED, gang_status
from services.scheduler.explain.gangs_and_reservations_without_plugin import objects_without_plugin
from services.scheduler.explain.waiting_order_config import rules_in_force
from services.scheduler.framework.config.config_reload import OfferedConfig
from shared.domain import gang
from shared.events.cluster import ObjectObserved
from shared.kube.resource_names import POD_GROUPS
from tests.support.reservations import observe, reservation
from tests.support.scheduling_world import World, node, pod

EXAMPLE = Path(__file__).parents[3] / "k8s" / "examples" / "scheduler-config-loadaware.yaml"
WITHOUT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins: {filter: {enabled: [{name: LoadAwareScheduling}]}}
"""


def _world(config: str) -> World:
    world = World()
    world.add_node(node("n", cpu="8"))
    body = {"metadata": {"name": "train", "namespace": "d"}, "spec": {"minMember": 2}}
    world.observe(ObjectObserved(resource=POD_GROUPS, name="d/train", uid="train", object=body))
    world.add_pod(pod("a", cpu="1", labels={gang.POD_GROUP_LABEL: "train"}))
    observe(world, reservation("web", "2"))
    world.append_drafts(config_drafts(world.view, OfferedConfig("file f", config)))
    world.read()
    world.view.read()
    return world


def test_a_profile_without_their_plugins_ignores_gangs_and_reservations() -> None:
    view = _world(WITHOUT).view
    rules = rules_in_force(view)
    gangs, reservations = objects_without_plugin(view, rules)
    assert (gangs.names, gangs.profiles, gangs.plugin) == (("d/train",), ("koord-scheduler",), "Coscheduling")
    assert (reservations.names, reservations.plugin) == (("web",), "Reservation")
    status = gang_status(view, rules, "d/train")
    assert status is not None
    assert (status.state, status.lacks) == (IGNORED, "profile koord-scheduler does not enable Coscheduling")
    first, second = about_unread_objects((gangs, reservations))
    assert first.what == (
        "1 gang (d/train): members are placed one by one, since profile koord-scheduler does not enable Coscheduling"
    )
    assert "1 Reservation (web): no pod uses held capacity" in second.what
    assert {first.severity, second.severity} == {"warning"}


def test_the_example_of_a_configuration_keeps_gangs_and_reservations() -> None:
    config = yaml.safe_load(EXAMPLE.read_text())["data"]["koord-scheduler-config"]
    view = _world(config).view
    assert list(objects_without_plugin(view, rules_in_force(view))) == []
