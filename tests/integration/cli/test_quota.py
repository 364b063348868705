"""The verbs for quotas on a real log: with `cluster` alone, and with the log of a ledger."""

import asyncio
import json
import re
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from cli.main import koord
from shared.events import Draft
from shared.events.cluster import NodeObserved, ObjectObserved
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.log.database import Database
from shared.log.writer import LogWriter
from tests.support.pods import kept_pod, observed

NOW_NS = 1_800_000_000_000_000_000


class Log(NamedTuple):
    url: str

    def koord(self, *arguments: str) -> Result:
        environment = {"KOORD_POSTGRES": self.url, "KOORD_NATS": "nats://127.0.0.1:1"}
        return CliRunner().invoke(koord, arguments, env=environment)


def quota(name: str, min_cpu: str = "5") -> Draft:
    raw = {"metadata": {"name": name, "namespace": "quotas"}, "spec": {"min": {"cpu": min_cpu}, "max": {"cpu": "10"}}}
    resource = "elasticquotas.scheduling.sigs.k8s.io"
    return Draft(ObjectObserved(resource=resource, name=f"quotas/{name}", uid=name, object=raw))


def pod(name: str, of: str, cpu: str, at: str) -> Draft:
    return Draft(observed(kept_pod(name, namespace="ns", labels={QUOTA_NAME: of}, requests={"cpu": cpu}, node_name=at)))


@pytest.fixture
async def log(database: str) -> Log:
    node = Node(metadata=Metadata(name="n1"), status=NodeStatus(allocatable={"cpu": "10"}))
    drafts = [
        Draft(NodeObserved(node="n1", object=node)),
        quota("a"),
        quota("b"),
        quota("bad", min_cpu="20"),
        pod("x", "a", "8", at="n1"),
        pod("y", "b", "6", at=""),
        pod("of-bad", "bad", "1", at=""),
        pod("mistyped", "bb", "1", at=""),
    ]
    opened = Database(database)
    writer = LogWriter(opened, None, "cluster", "test@1")
    await writer.acquire()
    await writer.begin("0", [], now_ns=NOW_NS, seen={})
    await writer.append(drafts, now_ns=NOW_NS, seen={}, config="")
    await writer.close()
    await opened.close()
    return Log(database)


async def run(log: Log, *arguments: str) -> Result:
    return await asyncio.to_thread(log.koord, *arguments)


async def test_the_tree_has_the_amounts_that_the_ledger_would_record(log: Log) -> None:
    result = await run(log, "get", "quotas", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert "No ledger had written" in result.stderr
    found = {line["quota"]: line for line in json.loads(result.stdout)["items"] if line["resource"] == "cpu"}
    assert (found["a"]["runtime"], found["a"]["used"], found["b"]["waiting"]) == (5000, 8000, 6000)


async def test_why_explain_whatif_and_verify_agree(log: Log) -> None:
    short = await run(log, "explain", "pod", "y", "-n", "ns")
    assert "Insufficient quotas, quotaName: b, runtime: cpu:5" in short.stdout
    assert "Quota b is short of cpu 1." in short.stdout
    arithmetic = await run(log, "explain", "quota", "a")
    assert "a: requests 8, min 5, weight 10: 5 = 5" in arithmetic.stdout
    other = await run(log, "whatif", "quota", "--set", "a.min.cpu=3", "-o", "json")
    assert json.loads(other.stdout) == {"a": {"cpu": [5000, 4000]}, "b": {"cpu": [5000, 6000]}}
    # No object sets a weight, so a max that is twice as high is twice the weight.
    free = ("--set", "a.min.cpu=0", "--set", "b.min.cpu=0", "--set", "a.max.cpu=20")
    other = await run(log, "whatif", "quota", *free, "-o", "json")
    assert json.loads(other.stdout) == {"a": {"cpu": [5000, 6667]}, "b": {"cpu": [5000, 3333]}}
    verified = await run(log, "verify", "quotas")
    assert verified.exit_code == 0
    assert verified.stdout.strip().endswith("balanced")


async def test_explain_pod_names_a_rejected_quota_and_one_that_does_not_exist(log: Log) -> None:
    rejected = (await run(log, "explain", "pod", "of-bad", "-n", "ns")).stdout
    assert rejected == (
        "ns/of-bad belongs to quota bad (by label)\n"
        "That quota is rejected, and its pods wait: quota bad: min of cpu is above its max; raise max or lower min\n"
    )
    got = await run(log, "get", "quota", "bad")
    text = "Quota bad is rejected, and its pods wait: min of cpu is above its max; raise max or lower min"
    assert (got.exit_code, got.stderr.splitlines()[-1]) == (1, f"koord: {text}")
    assert text not in (await run(log, "get", "quota", "a")).stderr
    missing = (await run(log, "explain", "pod", "mistyped", "-n", "ns")).stdout
    assert "belongs to quota koordinator-default-quota (by default)" in missing
    assert "Its label names quota bb, which does not exist" in missing
    unknown = await run(log, "explain", "pod", "nobody", "-n", "ns")
    assert "there is no pod 'ns/nobody'; `koord get pods -A` shows those there are" in unknown.stderr


async def test_the_tree_of_an_empty_log_is_empty(log: Log) -> None:
    result = await run(log, "get", "quotas", "--at", "2000-01-01T00:00:00Z", "-o", "json")
    assert json.loads(result.stdout) == {"items": []}


@pytest.mark.parametrize(
    "command",
    [
        ("get", "quotas"),
        ("explain", "quota", "a"),
        ("explain", "pod", "ns/x"),
        ("explain", "node", "n1"),
        ("whatif", "quota", "--set", "a.max.cpu=20"),
    ],
)
async def test_an_instant_in_the_future_is_refused_with_the_time_of_the_logs_head(
    log: Log, command: tuple[str, ...]
) -> None:
    result = await run(log, *command, "--at", "2999-01-01T00:00:00Z")
    assert result.exit_code == 1
    assert "--at 2999-01-01T00:00:00.000Z is in the future: the newest event of the log is of 20" in result.stderr
    assert result.stderr.endswith("give an earlier --at, or leave it out for the newest state\n")


async def test_a_node_without_a_decision_at_an_instant_names_it_as_all_times_are_written(log: Log) -> None:
    result = await run(log, "explain", "node", "n1", "--at", "1h")
    assert re.search(r"nothing was decided before \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z; see", result.stderr)


async def test_one_quota_is_printed_as_an_object_with_its_resources(log: Log) -> None:
    found = json.loads((await run(log, "get", "quota", "a", "-o", "json")).stdout)
    assert (found["quota"], found["parent"]) == ("a", "koordinator-root-quota")
    assert found["resources"]["cpu"]["max"] == 10_000
    assert (await run(log, "get", "quota", "a", "-o", "jsonpath={.resources.cpu.used}")).stdout == "8000\n"


async def test_an_unknown_quota_or_pod_is_named(log: Log) -> None:
    for arguments in (
        ("explain", "quota", "nobody"),
        ("explain", "pod", "ns/nobody"),
        ("whatif", "quota", "--set", "nobody.min.cpu=1"),
    ):
        result = await run(log, *arguments)
        assert result.exit_code == 1
        assert "nobody" in str(result.exception) + result.output
