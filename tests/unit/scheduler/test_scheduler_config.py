"""KubeSchedulerConfiguration: what is read, what is refused and where the fault is."""

import json

import pytest
import yaml

from services.scheduler.configuration import config_drafts, config_of, read_config
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.plugins.load_aware_scheduling.plugin import LoadAwareScheduling
from services.scheduler.plugins.node_resources_fit.plugin import NodeResourcesFit
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.component_config import BadConfig
from shared.domain.offered_config import OfferedConfig
from shared.events import Event
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.log import ConfigApplied, ConfigRejected
from tests.support.scheduling_world import World, cycles_of, metric, node, pod, use

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
LOAD_AWARE = (
    HEAD
    + """\
leaderElection:
  leaderElect: true
  resourceName: koord-scheduler
profiles:
- schedulerName: koord-scheduler
  plugins:
    filter:
      enabled:
      - name: LoadAwareScheduling
    score:
      enabled:
      - name: LoadAwareScheduling
        weight: 5
  pluginConfig:
  - name: LoadAwareScheduling
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: LoadAwareSchedulingArgs
      nodeMetricExpirationSeconds: 300
      usageThresholds:
        cpu: 75
        memory: 85
      aggregated:
        usageThresholds:
          cpu: 65
          memory: 75
        usageAggregationType: p99
        scoreAggregationType: p99
"""
)


def profile(body: str) -> str:
    return f"{HEAD}profiles:\n- schedulerName: s\n" + body


def test_the_shipped_profile_filters_in_upstreams_order_and_names_what_is_missing() -> None:
    configuration = read_config(DEFAULT_PROFILE)
    shipped = configuration.profiles["koord-scheduler"]
    assert [plugin.name for plugin in shipped.filters] == [
        "SchedulingHint", "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts",
        "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread",
        "InterPodAffinity", "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare", "Reservation",
    ]  # fmt: skip
    assert {scorer.plugin.name: scorer.weight for scorer in shipped.scorers} == {
        "TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1, "PodTopologySpread": 2, "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1, "LoadAwareScheduling": 1, "NodeNUMAResource": 1,
        "DeviceShare": 1, "Coscheduling": 1, "Reservation": 5000,
    }  # fmt: skip
    fit = next(plugin for plugin in shipped.plugins if isinstance(plugin, NodeResourcesFit))
    assert [resource.name for resource in fit.args.scoring_strategy.resources] == [
        "cpu", "memory", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory",
    ]  # fmt: skip
    assert not any("is not part of this release" in note for note in configuration.notes)


def test_the_published_load_aware_example_is_read() -> None:
    read = read_config(LOAD_AWARE).profiles["koord-scheduler"]
    plugin = next(plugin for plugin in read.plugins if isinstance(plugin, LoadAwareScheduling))
    assert plugin.args.usage_thresholds == {"cpu": 75, "memory": 85}
    assert plugin.args.aggregated is not None
    assert plugin.args.aggregated.usage_aggregation_type == "p99"
    assert next(scorer.weight for scorer in read.scorers if scorer.plugin is plugin) == 5


def test_json_is_read_as_well_as_yaml() -> None:
    text = json.dumps(yaml.safe_load(LOAD_AWARE))
    assert list(read_config(text).profiles) == ["koord-scheduler"]


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("just words", "", "expected an object, got a string; give a KubeSchedulerConfiguration"),
        ("a: [", "", "not YAML: line 1, column 5: expected the node content, but found '<stream end>'"),
        (HEAD.replace("v1", "v9"), "apiVersion", "v9"),
        (HEAD, "profiles", "at least one"),
        (HEAD + "profil: []", "", "unknown field `profil`"),
        (HEAD + "extenders: [{urlPrefix: x}]\nprofiles: [{}]", "extenders", "remove them"),
        (profile("- schedulerName: s\n"), "profiles[1].schedulerName", "already"),
        (profile("  plugins: {filter: {enabled: [{nam: x}]}}"), "profiles[0].plugins.filter.enabled[0]", "unknown field `nam`"),
        (profile("  plugins: {filter: {enabled: [{name: NodeName}, {name: NodeNmae}]}}"),
         "profiles[0].plugins.filter.enabled[1].name", "there is no plugin 'NodeNmae'; perhaps 'NodeName' is meant"),
        (profile("  plugins: {score: {disabled: [{name: Nope}]}}"), "profiles[0].plugins.score.disabled[0].name", "Nope"),
        (profile("  plugins: {score: {enabled: [{name: NodeAffinity, weight: -1}]}}"),
         "profiles[0].plugins.score.enabled[0].weight", "above 0"),
        (profile(f"  plugins: {{score: {{enabled: [{{name: NodeAffinity, weight: {2**31}}}]}}}}"),
         "profiles[0].plugins.score.enabled[0].weight", "<= 2147483647"),
        (profile("  plugins: {score: {enabled: [{name: NodeAffinity, weight: 1.5}]}}"),
         "profiles[0].plugins.score.enabled[0].weight", "a whole number"),
        (profile("  pluginConfig: [{name: Nope}]"), "profiles[0].pluginConfig[0].name", "Nope"),
        (profile("  pluginConfig: [{name: NodeResourcesFit, args: {kind: OtherArgs}}]"),
         "profiles[0].pluginConfig[0].args.kind", "NodeResourcesFitArgs"),
        (profile("  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Best}}}]"),
         "profiles[0].pluginConfig[0].args", "LeastAllocated"),
        (profile("  pluginConfig: [{name: NodeResourcesFit}, {name: NodeResourcesFit}]"),
         "profiles[0].pluginConfig[1].name", "give them once"),
        (profile("  pluginConfig: [{name: LoadAwareScheduling, args: {usageThresholds: {cpu: 101}}}]"),
         "profiles[0].pluginConfig[0].args", "usageThresholds[cpu] is 101"),
        (profile("  pluginConfig: [{name: LoadAwareScheduling, args: {usageTresholds: {cpu: 1}}}]"),
         "profiles[0].pluginConfig[0].args", "usageTresholds"),
        (profile("  pluginConfig: [{name: NodeAffinity, args: {added: 1}}]"), "profiles[0].pluginConfig[0].args", "added"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_path_and_reason(text: str, path: str, reason: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_config(text)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_a_point_may_take_plugins_out_and_put_them_in_another_order() -> None:
    text = profile(
        "  plugins:\n"
        "    filter: {disabled: [{name: NodePorts}], enabled: [{name: LoadAwareScheduling}, {name: NodeResourcesFit}]}\n"
        "    score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 7}]}\n"
    )
    read = read_config(text).profiles["s"]
    assert [plugin.name for plugin in read.filters] == [
        "NodeResourcesFit", "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "VolumeRestrictions",
        "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity", "LoadAwareScheduling",
    ]  # fmt: skip
    assert [(scorer.plugin.name, scorer.weight) for scorer in read.scorers] == [("NodeResourcesFit", 7)]


def test_multi_point_puts_a_plugin_at_every_point_it_implements() -> None:
    text = profile(
        "  plugins: {multiPoint: {disabled: [{name: NodeAffinity}], enabled: [{name: LoadAwareScheduling, weight: 2}]}}"
    )
    read = read_config(text).profiles["s"]
    assert "LoadAwareScheduling" in [plugin.name for plugin in read.filters]
    assert "NodeAffinity" not in [plugin.name for plugin in read.filters]
    assert {scorer.plugin.name: scorer.weight for scorer in read.scorers}["LoadAwareScheduling"] == 2


def test_totals_are_exact_whole_numbers_at_the_largest_weights() -> None:
    """Kernels sum totals as whole floats, which are exact below 2^53; upstream's weights are int32, and a score is 100
    at most."""
    names = [scorer.plugin.name for scorer in read_config(DEFAULT_PROFILE).profiles["koord-scheduler"].scorers]
    weights = {name: 2**31 - 1 - 2 * place for place, name in enumerate(names)}
    assert 100 * sum(weights.values()) < 2**53
    enabled = [{"name": name, "weight": weight} for name, weight in weights.items()]
    found = []
    for text in (json.dumps(_scored(enabled)), json.dumps(_scored([{"name": name, "weight": 1} for name in names]))):
        world = World()
        use(world, text)
        for name, cpu in (("a", "7"), ("b", "13")):
            world.add_node(node(name, cpu=cpu))
            world.report(metric(name, "900m"))
        world.add_pod(pod("p", cpu="1700m"))
        world.read()
        found.append({best.node: best for best in cycles_of(world.cycle())[0].classes[0].best})
    heavy, light = found
    for name in ("a", "b"):
        assert heavy[name].plugin_scores == {k: v * weights[k] for k, v in light[name].plugin_scores.items()}
        assert heavy[name].score == sum(heavy[name].plugin_scores.values()) > 2**32


def _scored(enabled: list[dict[str, object]]) -> dict[str, object]:
    plugins = {"multiPoint": {"disabled": [{"name": "*"}]}, "score": {"enabled": enabled}}
    return {**yaml.safe_load(HEAD), "profiles": [{"schedulerName": "koord-scheduler", "plugins": plugins}]}


# Taking over


def take(world: World, file: OfferedConfig | None = None) -> list[Event]:
    return [record.event for record in world.append_drafts(config_drafts(world.view, file))]


def test_the_shipped_profile_is_in_force_when_nobody_offers_another() -> None:
    world = World()
    (taken,) = take(world)
    assert isinstance(taken, ConfigApplied)
    assert taken.text == DEFAULT_PROFILE
    assert take(world) == []


def test_a_config_map_is_taken_over_when_it_is_seen_and_given_up_when_it_goes() -> None:
    world = World()
    take(world)
    put_config_map(world, {"koord-scheduler-config": LOAD_AWARE, "other": "x"})
    (taken,) = take(world)
    assert isinstance(taken, ConfigApplied)
    assert (taken.source, taken.text) == ("ConfigMap koordinator-system/koord-scheduler-config", LOAD_AWARE)
    assert taken.digest == world.view.config_digest
    world.observe(ObjectDeleted(resource="configmaps", name="koordinator-system/koord-scheduler-config", uid="u"))
    world.read()
    (taken,) = take(world)
    assert isinstance(taken, ConfigApplied)
    assert taken.text == DEFAULT_PROFILE


@pytest.mark.parametrize("data", [{"koord-scheduler-confg": LOAD_AWARE, "notes": "x"}, {}])
def test_a_config_map_without_the_key_is_refused_and_the_one_in_force_stays(data: dict[str, str]) -> None:
    world = World()
    put_config_map(world, {"koord-scheduler-config": LOAD_AWARE})
    (taken,) = take(world)
    assert isinstance(taken, ConfigApplied)
    put_config_map(world, data)
    (refused,) = take(world)
    assert isinstance(refused, ConfigRejected)
    there = ", ".join(data) or "none"
    assert (refused.path, refused.reason) == (
        "data",
        (
            f"the service reads the key koord-scheduler-config, and there is {there}; "
            "write the configuration below that key"
        ),
    )
    assert take(world) == []
    assert (world.view.config_text, world.view.config_digest) == (LOAD_AWARE, taken.digest)
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert restored.config_map_fault == refused.reason
    put_config_map(world, {"koord-scheduler-config": LOAD_AWARE, **data})
    assert [type(event) for event in take(world)] == [ConfigApplied]


def test_a_misspelt_key_of_a_config_map_that_has_no_other_is_read() -> None:
    world = World()
    put_config_map(world, {"koord-scheduler-confg": LOAD_AWARE})
    (taken,) = take(world)
    assert isinstance(taken, ConfigApplied)
    assert taken.text == LOAD_AWARE


def test_a_file_outranks_the_config_map() -> None:
    world = World()
    put_config_map(world, {"config.yaml": LOAD_AWARE})
    (taken,) = take(world, OfferedConfig("file f", DEFAULT_PROFILE))
    assert isinstance(taken, ConfigApplied)
    assert taken.source == "file f"
    assert take(world, OfferedConfig("file f", DEFAULT_PROFILE)) == []


def test_a_bad_configuration_is_refused_once_and_the_last_good_one_stays() -> None:
    world = World()
    take(world)
    bad = OfferedConfig("file f", profile("  plugins: {filter: {enabled: [{name: Nope}]}}"))
    (refused,) = take(world, bad)
    assert isinstance(refused, ConfigRejected)
    assert refused.path == "profiles[0].plugins.filter.enabled[0].name"
    assert take(world, bad) == []
    assert list(config_of(world.view).profiles) == ["koord-scheduler"]


def test_a_rejection_ends_when_the_text_in_force_is_offered_again() -> None:
    world = World()
    put_config_map(world, {"config.yaml": LOAD_AWARE})
    take(world)
    put_config_map(world, {"config.yaml": "nonsense"})
    (refused,) = take(world)
    assert isinstance(refused, ConfigRejected)
    put_config_map(world, {"config.yaml": LOAD_AWARE})
    (taken,) = take(world)
    assert isinstance(taken, ConfigApplied)
    assert taken.text == LOAD_AWARE
    assert take(world) == []


def test_a_bad_configuration_at_the_first_start_leaves_the_shipped_one_in_force() -> None:
    world = World()
    events = take(world, OfferedConfig("file f", "nonsense"))
    assert [type(event) for event in events] == [ConfigApplied, ConfigRejected]
    assert take(world, OfferedConfig("file f", "nonsense")) == []


def test_a_state_without_a_configuration_decides_by_the_shipped_one() -> None:
    assert config_of(SchedulerState()) is read_config(DEFAULT_PROFILE)


def put_config_map(world: World, data: dict[str, str]) -> None:
    name = "koordinator-system/koord-scheduler-config"
    world.observe(ObjectObserved(resource="configmaps", name=name, uid="u", object={"data": data}))
    world.read()
