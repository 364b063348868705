"""Configurations that Koordinator ships and that its guides show, of present and older versions; and their errors."""

import pytest

from services.scheduler.configuration import read_config
from services.scheduler.plugins.load_aware_scheduling.plugin import LoadAwareScheduling
from services.scheduler.plugins.node_numa_resource.plugin import NodeNUMAResource
from services.scheduler.plugins.node_resources_fit_plus.plugin import NodeResourcesFitPlus
from services.scheduler.plugins.scarce_resource_avoidance.plugin import ScarceResourceAvoidance
from services.scheduler.plugins.scheduling_hint.plugin import SchedulingHint
from shared.domain.component_config import BadConfig
from tests.support.shipped_config import SHIPPED_WITH_ELECTION

OLD_GUIDE = """\
apiVersion: kubescheduler.config.k8s.io/v1beta2
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceName: koord-scheduler
  resourceNamespace: koordinator-system
profiles:
  - pluginConfig:
    - name: NodeResourcesFit
      args:
        apiVersion: kubescheduler.config.k8s.io/v1beta2
        kind: NodeResourcesFitArgs
        scoringStrategy:
          type: LeastAllocated
          resources:
            - name: cpu
              weight: 1
            - name: "kubernetes.io/batch-cpu"
              weight: 1
    - name: LoadAwareScheduling
      args:
        apiVersion: kubescheduler.config.k8s.io/v1beta2
        kind: LoadAwareSchedulingArgs
        filterExpiredNodeMetrics: true
        nodeMetricExpirationSeconds: 300
        resourceWeights: {cpu: 1, memory: 1}
        usageThresholds: {cpu: 75, memory: 85}
        estimatedScalingFactors: {cpu: 80, memory: 70}
    - name: NodeNUMAResource
      args:
        apiVersion: kubescheduler.config.k8s.io/v1beta2
        kind: NodeNUMAResourceArgs
        defaultCPUBindPolicy: SpreadByPCPUs
        scoringStrategy:
          type: MostAllocated
          resources:
            - {name: cpu, weight: 2}
            - {name: "kubernetes.io/batch-cpu", weight: 2}
    - name: ElasticQuota
      args:
        apiVersion: kubescheduler.config.k8s.io/v1beta2
        kind: ElasticQuotaArgs
        quotaGroupNamespace: koordinator-system
        defaultQuotaGroupMax: {cpu: "10", memory: 20Gi}
        delayEvictTime: 120s
    - name: Coscheduling
      args:
        apiVersion: kubescheduler.config.k8s.io/v1beta2
        kind: CoschedulingArgs
        defaultTimeout: 600s
    plugins:
      queueSort:
        disabled: [{name: "*"}]
        enabled: [{name: Coscheduling}]
      preFilter:
        enabled: [{name: NodeNUMAResource}, {name: DeviceShare}, {name: Coscheduling}, {name: ElasticQuota}]
      filter:
        enabled: [{name: LoadAwareScheduling}, {name: NodeNUMAResource}, {name: DeviceShare}, {name: Reservation}]
      postFilter:
        disabled: [{name: "*"}]
        enabled: [{name: Reservation}, {name: Coscheduling}, {name: ElasticQuota}, {name: CompatibleDefaultPreemption}]
      preScore:
        enabled: [{name: Reservation}]
      score:
        enabled:
          - {name: NodeNUMAResource, weight: 1}
          - {name: LoadAwareScheduling, weight: 1}
          - {name: Reservation, weight: 5000}
        disabled: [{name: SelectorSpread}]
      reserve:
        enabled: [{name: LoadAwareScheduling}, {name: NodeNUMAResource}]
      preBind:
        enabled: [{name: NodeNUMAResource}, {name: DefaultPreBind}]
      bind:
        disabled: [{name: "*"}]
        enabled: [{name: Reservation}, {name: DefaultBinder}]
    schedulerName: koord-scheduler
"""

COLOCATED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: online
  pluginConfig:
  - name: NodeResourcesFitPlus
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitPlusArgs
      resources:
        nvidia.com/gpu: {type: MostAllocated, weight: 2}
        cpu: {type: LeastAllocated, weight: 1}
  - name: ScarceResourceAvoidance
    args: {kind: ScarceResourceAvoidanceArgs, resources: [nvidia.com/gpu]}
  - name: SchedulingHint
    args: {maxHintNodes: 3}
  plugins:
    preScore: {enabled: [{name: NodeResourcesFitPlus}]}
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeResourcesFitPlus, weight: 2}, {name: ScarceResourceAvoidance, weight: 3}]
    preFilter: {enabled: [{name: SchedulingHint}]}
- schedulerName: offline
  plugins:
    multiPoint: {enabled: [{name: NodeNUMAResource, weight: 4}]}
    filter: {disabled: [{name: NodePorts}, {name: NodeNUMAResource}]}
"""


def test_upstreams_shipped_configuration_is_read() -> None:
    configuration = read_config(SHIPPED_WITH_ELECTION)
    assert list(configuration.profiles) == ["koord-scheduler"]
    assert any(isinstance(plugin, NodeNUMAResource) for plugin in configuration.profiles["koord-scheduler"].filters)


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3", "v1"])
def test_an_old_guide_is_read_as_the_present_version_with_a_note(version: str) -> None:
    configuration = read_config(OLD_GUIDE.replace("v1beta2", version))
    (profile,) = configuration.profiles.values()
    (numa,) = (plugin for plugin in profile.plugins if isinstance(plugin, NodeNUMAResource))
    assert numa.args.bind == "SpreadByPCPUs"
    assert (numa.args.strategies.of_node, numa.args.strategies.of_zones) == ("MostAllocated", "LeastAllocated")
    assert numa.args.strategies.weights == (("cpu", 2), ("kubernetes.io/batch-cpu", 2))
    (load,) = (plugin for plugin in profile.plugins if isinstance(plugin, LoadAwareScheduling))
    assert load.args.usage_thresholds == {"cpu": 75, "memory": 85}
    read_as = [note for note in configuration.notes if "is read as" in note]
    assert bool(read_as) == (version != "v1")
    gone = "profile koord-scheduler: plugin CompatibleDefaultPreemption does not exist any more and is passed over"
    assert gone in configuration.notes


def test_several_profiles_have_plugins_and_weights_of_their_own() -> None:
    online, offline = read_config(COLOCATED).profiles.values()
    assert {scorer.plugin.name: scorer.weight for scorer in online.scorers} == {
        "NodeResourcesFitPlus": 2, "ScarceResourceAvoidance": 3,
    }  # fmt: skip
    kinds = {type(plugin): plugin for plugin in online.plugins}
    plus, scarce, hint = kinds[NodeResourcesFitPlus], kinds[ScarceResourceAvoidance], kinds[SchedulingHint]
    assert isinstance(plus, NodeResourcesFitPlus)
    assert plus.preferences["nvidia.com/gpu"].weight == 2
    assert isinstance(scarce, ScarceResourceAvoidance)
    assert scarce.scarce == {"nvidia.com/gpu"}
    assert isinstance(hint, SchedulingHint)
    assert (online.filters[0], hint.max_nodes) == (hint, 3)
    assert {"NodePorts", "NodeNUMAResource", "SchedulingHint"}.isdisjoint(plugin.name for plugin in offline.filters)
    assert {scorer.plugin.name: scorer.weight for scorer in offline.scorers}["NodeNUMAResource"] == 4


def with_args(plugin: str, args: str) -> str:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    return f"{head}- pluginConfig: [{{name: {plugin}, args: {args}}}]\n"


@pytest.mark.parametrize(
    ("plugin", "args", "reason"),
    [
        ("NodeNUMAResource", "{defaultCPUBindPolicy: Never}", "defaultCPUBindPolicy is 'Never'"),
        ("NodeNUMAResource", "{scoringStrategy: {type: BalancedAllocation}}", "scoringStrategy.type"),
        ("NodeNUMAResource", "{numaScoringStrategy: {resources: [{name: cpu, weight: 101}]}}", "numaScoringStrategy.resources[0].weight is 101"),
        ("NodeNUMAResource", "{scoringStrategies: {}}", "unknown field `scoringStrategies`"),
        ("SchedulingHint", "{maxHintNodes: 0}", "maxHintNodes is 0"),
        ("SchedulingHint", "{maxHintNodes: many}", "maxHintNodes"),
        ("NodeResourcesFitPlus", "{resources: {cpu: {kind: x}}}", "unknown field `kind`"),
        ("ScarceResourceAvoidance", "{resource: []}", "unknown field `resource`"),
        ("Reservation", "{minCandidateNodesPercentage: 101}", "minCandidateNodesPercentage"),
        ("Reservation", "{ignoredResources: [cpu]}", "ignoredResources[0] is 'cpu'"),
        ("Reservation", "{ignoredResourceGroups: [a/b]}", "ignoredResourceGroups[0]"),
        ("Reservation", "{gcDuration: 1}", "unknown field `gcDuration`"),
        ("ElasticQuota", "{delayEvictTime: soon}", "delayEvictTime"),
        ("ElasticQuota", "{revokePodInterval: -1s}", "revokePodInterval is -1s"),
        ("ElasticQuota", "{defaultQuotaGroupMax: {cpu: -1}}", "defaultQuotaGroupMax[cpu] is -1"),
        ("Coscheduling", "{controllerWorkers: 0}", "controllerWorkers"),
        ("Coscheduling", "{defaultTimeout: -5s}", "defaultTimeout is -5s"),
        ("DeviceShare", "{scoringStrategy: {resources: [{name: x, weight: 0}]}}", "weight"),
        ("DeviceShare", "{scoringStrategy: {type: Best}}", "scoringStrategy.type is 'Best'"),
        ("DeviceShare", "{gpuShareUnsupportedModels: [{vendor: huawei}]}", "model"),
        ("DynamicResources", "{filterTimeout: ten}", "filterTimeout"),
    ],
)  # fmt: skip
def test_an_argument_that_is_wrong_is_refused_with_its_place(plugin: str, args: str, reason: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_config(with_args(plugin, args))
    assert caught.value.path == "profiles[0].pluginConfig[0].args"
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ("leaderElect: true", "leaderElected: true", "leaderElection"),
        ("leaderElect: true", "leaderElect: perhaps", "leaderElection.leaderElect"),
        ("leaderElection:", "parallelism: 0\nleaderElection:", "parallelism"),
        ("leaderElection:", "percentageOfNodesToScore: 101\nleaderElection:", "percentageOfNodesToScore"),
        ("leaderElection:", "podMaxBackoffSeconds: 2\npodInitialBackoffSeconds: 3\nleaderElection:", "podMaxBackoffSeconds"),
        ("kubescheduler.config.k8s.io/v1\n      kind: Load", "kubescheduler.config.k8s.io/v7\n      kind: Load",
         "profiles[0].pluginConfig[1].args.apiVersion"),
        ("      - name: SchedulingHint\n", "      - name: SchedulingHint\n      - name: SchedulingHint\n",
         "profiles[0].plugins.preFilter.enabled[1].name"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_upstreams_own_configuration_is_named(before: str, after: str, path: str) -> None:
    assert before in SHIPPED_WITH_ELECTION
    with pytest.raises(BadConfig) as caught:
        read_config(SHIPPED_WITH_ELECTION.replace(before, after, 1))
    assert caught.value.path == path
