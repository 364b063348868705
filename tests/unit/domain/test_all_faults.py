"""All faults of a document whose reader names one at a time."""

from services.scheduler.framework.config.profiles import faults_of
from services.scheduler.plugins.registry import REGISTRY
from services.slo_controller.config.slo_configmap import read

SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackofSeconds: 1
profiles:
  - schedulerName: koord-scheduler
    percentageOfNodesToScore: many
    plugins:
      filter:
        enabled:
          - name: LoadAware
          - name: NodeResourcesFit
          - name: Reservaton
    pluginConfig:
      - name: LoadAwareScheduling
        args:
          nodeMetricExpirationSeconds: soon
"""


def test_all_faults_of_a_schedulers_configuration_are_named_at_their_places() -> None:
    faults = faults_of(SCHEDULER, REGISTRY)
    assert [fault.path for fault in faults] == [
        "",
        "profiles[0].percentageOfNodesToScore",
        "profiles[0].plugins.filter.enabled[0].name",
        "profiles[0].plugins.filter.enabled[2].name",
        "profiles[0].pluginConfig[0].args",
    ]
    assert "podInitialBackofSeconds" in faults[0].reason
    assert "'LoadAware'" in faults[2].reason
    assert "'Reservaton'" in faults[3].reason


def test_a_text_that_is_no_configuration_has_one_fault() -> None:
    assert len(faults_of("a: [", REGISTRY)) == 1
    assert len(faults_of("just text", REGISTRY)) == 1
    assert [fault.path for fault in faults_of("apiVersion: v1\nkind: Pod\n", REGISTRY)] == ["apiVersion"]


def test_all_faults_of_each_document_of_a_slo_configmap_are_named() -> None:
    data = {
        "colocation-config": '{"enable": "yes", "cpuReclaimThresholdPercent": -5, "degradeTimeMinutes": -1}',
        "resource-threshold-config": '{"clusterStrategy": {"cpuSuppressThresholdPercent": 300, "enable": 1}}',
        "cpu-burst-config": "{",
    }
    places = [problem.place for problem in read(data, {}).problems]
    assert places == [
        "colocation-config: enable",
        "colocation-config: degradeTimeMinutes",
        "colocation-config: cpuReclaimThresholdPercent",
        "resource-threshold-config: clusterStrategy.enable",
        "resource-threshold-config: clusterStrategy.cpuSuppressThresholdPercent",
        "cpu-burst-config",
    ]


def test_faults_of_arguments_that_only_the_reason_names_hide_no_other() -> None:
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - pluginConfig:
    - name: LoadAwareScheduling
      args: {bogus: 1, filterExpiredNodeMetrics: 4, usageThresholds: {cpu: 140}, aggregated: {usageAggregationType: p12}}
"""
    reasons = "\n".join(fault.reason for fault in faults_of(text, REGISTRY))
    for field in ("bogus", "filterExpiredNodeMetrics", "usageThresholds[cpu] is 140", "usageAggregationType is 'p12'"):
        assert reasons.count(field) == 1


def test_faults_of_node_strategies_are_named_beside_those_of_the_cluster() -> None:
    text = '{"enable": 3, "nodeConfigs": [{"name": "a", "cpuReclaimThresholdPercent": -3}, {"memoryReclaimThresholdPercent": -3}]}'
    assert [problem.path for problem in read({"colocation-config": text}, {}).problems] == [
        "enable",
        "nodeConfigs[0].cpuReclaimThresholdPercent",
        "nodeConfigs[1].memoryReclaimThresholdPercent",
    ]
