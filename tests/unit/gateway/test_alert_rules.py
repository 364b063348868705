"""The alert rules of docs/kubernetes.md: every metric in them is one of the gateway's."""

import re
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry, generate_latest

from services.gateway.metrics import GatewayMetrics

DOCUMENT = Path(__file__).parents[3] / "docs" / "kubernetes.md"


def test_every_alert_rule_names_a_metric_of_the_gateway() -> None:
    registry = CollectorRegistry()
    GatewayMetrics(registry)
    exported = generate_latest(registry).decode()
    found = re.search(r"```yaml\n(groups:.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found
    rules = [rule for group in yaml.safe_load(found[1])["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} >= {"KoordShortList", "KoordResourceNotRead"}
    for rule in rules:
        for name in re.findall(r"koord_\w+", rule["expr"]):
            assert f"# TYPE {name} " in exported or f"# TYPE {name.removesuffix('_total')}" in exported
