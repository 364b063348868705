"""docs/quota.md: its example is written into a log, and every command, number and sum in it is compared with the
output.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.main import koord
from cli.quota.rebuild_state import fold_log
from services.quota_ledger.decide.decide_ledger_events import caught_up
from services.quota_ledger.settings import LedgerSettings
from shared.events import Draft
from shared.events.cluster import NodeObserved, ObjectObserved, PodObserved
from shared.events.quota import RevocationDecided
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.log.admin.session import reading
from shared.log.database import Database
from shared.log.writer import LogWriter
from tests.support.pods import kept_pod, observed

DOCUMENT = Path(__file__).parents[3] / "docs" / "quota.md"
NOW_NS = 1_800_000_000_000_000_000
NODE = "n1"


class Part:
    """One half of the document: before the lender returns, and after."""

    def __init__(self, text: str) -> None:
        self.text = text
        blocks = re.findall(r"```console\n\$ koord (.*)\n((?:.*\n)*?)```", text)
        self.commands: dict[str, str] = dict(blocks)

    def table(self, first: str) -> list[list[str]]:
        """Returns the rows of the table whose first column has this name."""
        found = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", self.text, re.MULTILINE)
        assert found is not None, first
        return [[cell.strip() for cell in row.strip("|").split("|")] for row in found[1].splitlines()]

    def pods(self) -> list[Draft]:
        drafts = []
        for names, of, cpu, running in self.table("pods"):
            for name in _spelled_out(names):
                runs = running == "all" or name in running.split(", ")
                drafts.append(Draft(_pod(name, of, cpu, NODE if runs else "")))
        return drafts


def parts() -> tuple[Part, Part]:
    before, after = DOCUMENT.read_text().split("## The lender returns")
    return Part(before), Part(after)


class Log:
    """A log with the events of the document so far."""

    def __init__(self, url: str, writer: LogWriter) -> None:
        self.url = url
        self._writer = writer

    async def report(self, drafts: list[Draft]) -> None:
        await self._writer.append(drafts, now_ns=NOW_NS, seen={}, config="")

    async def quota(self, command: str) -> str:
        environment = {"KOORD_POSTGRES": self.url, "KOORD_NATS": "nats://127.0.0.1:1"}
        result = await asyncio.to_thread(CliRunner().invoke, koord, command.split(), env=environment)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
async def log(database: str) -> AsyncIterator[Log]:
    opened = Database(database)
    writer = LogWriter(opened, None, "cluster", "test@1")
    await writer.acquire()
    await writer.begin("0", [], now_ns=NOW_NS, seen={})
    log, (part, _) = Log(database, writer), parts()
    nodes = [
        Draft(
            NodeObserved(
                node=name, object=Node(metadata=Metadata(name=name), status=NodeStatus(allocatable={"cpu": cpu}))
            )
        )
        for name, cpu in part.table("node")
    ]
    await log.report([*nodes, *_quotas(part.text), *part.pods()])
    yield log
    await writer.close()
    await opened.close()


async def test_every_command_prints_the_text_of_the_document(log: Log) -> None:
    before, after = parts()
    assert {"get quotas", "explain quota train", "explain pod ns/batch-1"} < before.commands.keys()
    for command, printed in before.commands.items():
        assert await log.quota(command) == printed, command
    await log.report(after.pods())
    assert {"get quotas", "verify quotas"} <= after.commands.keys()
    for command, printed in after.commands.items():
        assert _uncounted(await log.quota(command)) == _uncounted(printed), command


async def test_the_victims_are_those_of_the_document(log: Log) -> None:
    before, after = parts()
    del before
    await log.report(after.pods())
    async with reading(log.url) as whole:
        state = (await fold_log(whole)).state
    settings = LedgerSettings(revoke=True)
    caught_up(state, settings, NOW_NS)
    late = caught_up(state, settings, NOW_NS + int(settings.revoke_after_s * SECOND) + 1)
    decided = [record.event for record in late if isinstance(record.event, RevocationDecided)]
    reported = after.table("quota")
    found = [
        [
            event.quota,
            *(str(amount // 1000) for amount in (event.runtime["cpu"], event.used["cpu"])),
            str((event.used["cpu"] - event.runtime["cpu"]) // 1000),
            f"{len(event.pods)} pod" + ("s" if len(event.pods) != 1 else ""),
        ]
        for event in sorted(decided, key=lambda each: each.quota)
    ]
    assert found == reported


def test_every_balance_in_the_document_adds_up() -> None:
    text = DOCUMENT.read_text()
    balances = re.findall(r"surplus (\d+) \+ lent (\d+) = borrowed (\d+) \+ idle (\d+)", text)
    assert balances
    for surplus, lent, borrowed, idle in balances:
        assert int(surplus) + int(lent) == int(borrowed) + int(idle)
    sums = re.findall(r": ((?:\d+ \+ )*\d+) = (\d+)$", text, re.MULTILINE)
    assert sums
    for terms, total in sums:
        assert sum(map(int, terms.split(" + "))) == int(total)


def _quotas(text: str) -> list[Draft]:
    found = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return [Draft(_quota(raw)) for raw in yaml.safe_load_all(found[1]) if raw["kind"] == "ElasticQuota"]


def _quota(raw: dict[str, Any]) -> ObjectObserved:
    metadata = raw["metadata"]
    raw["spec"] = {bound: {name: str(size) for name, size in sizes.items()} for bound, sizes in raw["spec"].items()}
    resource = f"elasticquotas.{raw['apiVersion'].partition('/')[0]}"
    key = f"{metadata['namespace']}/{metadata['name']}"
    return ObjectObserved(resource=resource, name=key, uid=metadata["name"], object=raw)


def _pod(name: str, of: str, cpu: str, at: str) -> PodObserved:
    return observed(kept_pod(name, namespace="ns", labels={QUOTA_NAME: of}, requests={"cpu": cpu}, node_name=at))


def _spelled_out(names: str) -> list[str]:
    """Expands `web-1 to web-3` to three names."""
    first, _, last = names.partition(" to ")
    if not last:
        return [first]
    stem, _, start = first.rpartition("-")
    return [f"{stem}-{number}" for number in range(int(start), int(last.rpartition("-")[2]) + 1)]


def _uncounted(printed: str) -> str:
    """Replaces the number of events, which may differ."""
    return re.sub(r"\d+ events to seq \d+", "events", printed)
