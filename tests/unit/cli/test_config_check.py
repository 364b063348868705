"""`koord config check`: the readers of the services, without a system."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import koord
from shared.domain.config_map_text import config_map_text

DESCHEDULER = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
  - plugins: {balance: {enabled: [{name: LowNodeLoad}]}}
    pluginConfig: [{name: LowNodeLoad, args: {lowThresholds: {cpu: 20}, highThresholds: {cpu: %s}}}]
"""


def config_map(version: str, name: str, text: str) -> str:
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return f"apiVersion: {version}\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: koordinator-system}}\ndata:\n  {name}: |\n{lines}"


def checked(path: Path, text: str) -> tuple[int, str]:
    file = path / "config.yaml"
    file.write_text(text)
    done = CliRunner().invoke(koord, ["config", "check", str(file)])
    return done.exit_code, done.output.replace(str(file), "FILE")


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (DESCHEDULER % 50, 0, "FILE: accepted\n"),
        (config_map("v1", "koord-descheduler-config", DESCHEDULER % 50), 0, "FILE: accepted\n"),
        (
            DESCHEDULER % 10,
            1,
            "FILE: fault: DeschedulerConfiguration: profiles[0].pluginConfig[0].args.lowThresholds.cpu: 20 is above highThresholds.cpu, 10; give at most that\n",
        ),
        (
            config_map("descheduler/v1alpha2", "koord-descheduler-config", DESCHEDULER % 50),
            1,
            "FILE:1: fault: ConfigMap koord-descheduler-config: 'descheduler/v1alpha2' is not a ConfigMap's, so no API server takes it; write apiVersion: v1\n",
        ),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: []\n",
            1,
            "FILE: fault: KubeSchedulerConfiguration: profiles: empty; give at least one profile\n",
        ),
        (
            config_map("v1", "koordlet-config", "qos: {}"),
            0,
            "FILE: note: ConfigMap koordlet-config: only QoS plugins of other distributions read it (key qos-plugin-extra-configs): what agents do is in slo-controller-config\nFILE: accepted\n",
        ),
    ],
)
def test_a_configuration_is_checked_as_its_service_would(text: str, code: int, expected: str, tmp_path: Path) -> None:
    assert checked(tmp_path, text) == (code, expected)


def test_a_document_of_the_slo_controller_is_checked_by_its_key(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: '{"enable": true, "cpuReclaimThresholdPercent": -5}'
"""
    code, output = checked(tmp_path, text)
    assert code == 1
    assert "colocation-config" in output
    assert "cpuReclaimThresholdPercent" in output


def test_a_file_without_a_configuration_is_refused(tmp_path: Path) -> None:
    code, output = checked(tmp_path, "apiVersion: v1\nkind: Pod\n")
    assert code == 1
    assert "FILE has no configuration that a service reads" in output


def test_the_published_configmap_of_the_guide_is_named_with_its_line_and_its_content_is_checked(tmp_path: Path) -> None:
    text = config_map("descheduler/v1alpha2", "koord-descheduler-config", DESCHEDULER % 10)
    code, output = checked(tmp_path, text)
    assert code == 1
    assert [line.partition(": ")[0] for line in output.splitlines()] == ["FILE:1", "FILE"]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("{name: koord-descheduler-config, namespace: default}", "it belongs into koordinator-system"),
        ("{name: my-config, namespace: koordinator-system}", "name it koord-descheduler-config"),
        (
            "{name: koord-descheduler-config}",
            "note: ConfigMap koord-descheduler-config: metadata.namespace: there is none",
        ),
    ],
)
def test_a_configmap_that_no_service_reads_is_named_with_the_right_place(
    metadata: str, expected: str, tmp_path: Path
) -> None:
    text = config_map("v1", "koord-descheduler-config", DESCHEDULER % 50)
    text = text.replace("{name: koord-descheduler-config, namespace: koordinator-system}", metadata)
    code, output = checked(tmp_path, text)
    assert expected in output
    assert code == (0 if "note" in expected else 1)


def test_the_slo_controllers_documents_under_another_name_are_checked_and_the_name_is_corrected(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-config, namespace: koordinator-system}
data:
  colocation-config: '{"enabel": true, "cpuReclaimThresholdPercent": -5}'
"""
    code, output = checked(tmp_path, text)
    assert code == 1
    assert "name it slo-controller-config" in output
    assert "is -5" in output
    assert "'enable' is meant" in output


def test_a_key_that_is_not_read_is_named(tmp_path: Path) -> None:
    text = config_map("v1", "koord-descheduler-config", DESCHEDULER % 50).replace(
        "data:\n  koord-", "data:\n  a: b\n  my-"
    )
    code, output = checked(tmp_path, text)
    assert code == 1
    assert "the service reads the key koord-descheduler-config, and there is a, my-descheduler-config;" in output


def test_of_many_keys_five_are_named_in_the_place_of_one_that_is_missing() -> None:
    text, why = config_map_text("config", dict.fromkeys("hgfedcba", ""))
    assert text is None
    assert "the service reads the key config, and there is a, b, c, d, e and 3 more; write" in why


def test_a_configuration_with_many_faults_names_ten_and_that_there_may_be_more(tmp_path: Path) -> None:
    text = DESCHEDULER % 50 + "".join(f"  - {{name: p{number}, nodeSelector: 3}}\n" for number in range(12))
    code, output = checked(tmp_path, text)
    assert code == 1
    assert output.count("FILE: fault") == 10
    assert "note: DeschedulerConfiguration: these are the first 10 faults; there may be more" in output
