"""ConfigMaps taken over and refused: the last good document of each key stays."""

import json

from services.slo_controller.config.colocation_strategy import DEFAULT_CONFIG
from services.slo_controller.config.slo_configmap import config_of, read
from shared.admission.slo_config.document_validation import BURST, COLOCATION, HOST_APPLICATIONS, QOS, THRESHOLD
from shared.domain.slo_defaults import DEFAULT_BURST

GOOD = {
    COLOCATION: '{"enable": true, "cpuReclaimThresholdPercent": 70}',
    BURST: '{"clusterStrategy": {"policy": "auto"}}',
}


def test_without_documents_the_defaults_are_in_force() -> None:
    config = config_of({})
    assert config.colocation == DEFAULT_CONFIG
    assert config.burst.cluster_strategy == DEFAULT_BURST


def test_invalid_json_leaves_the_keys_last_valid_document_and_applies_the_others() -> None:
    before = read(GOOD, {}).texts
    after = read({COLOCATION: "{", BURST: '{"clusterStrategy": {"policy": "none"}}'}, before)
    assert config_of(after.texts).colocation.cpu_reclaim_threshold_percent == 70
    assert config_of(after.texts).burst.cluster_strategy == DEFAULT_BURST
    assert [(problem.key, problem.strategy) for problem in after.problems] == [(COLOCATION, "cluster")]


def test_a_rejection_names_key_path_strategy_and_reason() -> None:
    data = {
        COLOCATION: json.dumps({"nodeConfigs": [{"name": "pool-a", "degradeTimeMinutes": "soon"}]}),
        THRESHOLD: json.dumps({"nodeStrategies": [{"name": "pool-b", "cpuSuppressThresholdPercent": 101}]}),
        QOS: json.dumps({"clusterStrategy": {"beClass": {"cpuQOS": {"groupIdentity": 3}}}}),
    }
    assert [str(problem) for problem in read(data, {}).problems] == [
        "colocation-config: nodeConfigs[0].degradeTimeMinutes of strategy pool-a cannot be read: expected a whole number, got a string",
        "resource-threshold-config: nodeStrategies[0].cpuSuppressThresholdPercent of strategy pool-b is 101; give 0 to 100",
        "resource-qos-config: clusterStrategy.beClass.cpuQOS.groupIdentity of strategy cluster is 3; give -1 to 2",
    ]


def test_a_cluster_strategy_out_of_bounds_keeps_the_last_valid_one() -> None:
    before = read(GOOD, {}).texts
    for bad in (
        '{"cpuReclaimThresholdPercent": -1}',
        '{"resourceDiffThreshold": 0}',
        '{"metricMemoryCollectPolicy": ""}',
    ):
        reading = read({COLOCATION: bad}, before)
        assert reading.texts == {COLOCATION: GOOD[COLOCATION]}, bad
        assert len(reading.problems) == 1


def test_a_removed_key_falls_back_to_defaults() -> None:
    assert read({}, read(GOOD, {}).texts).texts == {}


def test_an_empty_text_is_the_defaults_for_colocation_and_no_document_for_other_keys() -> None:
    reading = read({COLOCATION: "", BURST: ""}, read(GOOD, {}).texts)
    assert reading.texts == {BURST: GOOD[BURST]}
    assert [problem.key for problem in reading.problems] == [BURST]


def test_windows_are_written_as_go_writes_them() -> None:
    texts = read({COLOCATION: '{"metricAggregatePolicy": {"durations": ["1m", "90s"]}}'}, {}).texts
    policy = config_of(texts).colocation.metric_aggregate_policy
    assert policy is not None
    assert policy.durations == ("1m0s", "1m30s")


def test_one_field_of_a_pair_is_in_force_where_no_webhook_rejects_it() -> None:
    reading = read({THRESHOLD: '{"clusterStrategy": {"enable": true, "memoryEvictThresholdPercent": 70}}'}, {})
    assert not reading.problems
    reading = read(
        {THRESHOLD: '{"clusterStrategy": {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 70}}'}, {}
    )
    assert [problem.path for problem in reading.problems] == ["clusterStrategy.memoryEvictThresholdPercent"]


def test_a_text_that_the_api_server_would_refuse_rejects_its_document_alone() -> None:
    threshold = '{"clusterStrategy": {"cpuSuppressThresholdPercent": 44}}'
    host = {"applications": [{"name": "nginx", "cgroupPath": {"base": "CgroupRot"}}]}
    blocks = {"blocks": [{"name": "a", "type": "disk"}]}
    data = {
        BURST: '{"clusterStrategy": {"policy": "autoo"}}',
        THRESHOLD: threshold,
        QOS: json.dumps({"nodeStrategies": [{"name": "b", "beClass": {"blkioQOS": blocks}}]}),
        HOST_APPLICATIONS: json.dumps(host),
    }
    reading = read(data, {})
    assert reading.texts == {THRESHOLD: threshold}
    assert {f"{problem.place} {problem.text}" for problem in reading.problems} == {
        "cpu-burst-config: clusterStrategy.policy is 'autoo'; give one of auto, cfsQuotaBurstOnly, cpuBurstOnly, none",
        "resource-qos-config: nodeStrategies[0].beClass.blkioQOS.blocks[0].type is 'disk'; give one of device, podvolume, volumegroup",
        "host-application-config: applications[0].cgroupPath.base is 'CgroupRot'; give one of CgroupRoot, Kubepods, KubepodsBesteffort, KubepodsBurstable",
    }
