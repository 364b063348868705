"""koord get configs and koord top on a real log, with writers that announce on a real bus."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from cli.embedded import EmbeddedNats
from cli.main import koord
from cli.processes.free_ports import free_port
from services.scheduler.plugins.registry import REGISTRY
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.log import CarriedForward, ConfigApplied, ConfigRejected, WriterStarted
from shared.rejected_messages import RejectedMessages
from shared.runtime import health
from shared.runtime.health import Metrics
from shared.runtime.status import Status
from tests.integration.cli.installation import Installation
from tests.support.terminal import CTRL_C, Terminal

TAKES = (WriterStarted, ConfigApplied, ConfigRejected)


@pytest.fixture
async def installation(database: str, nats: EmbeddedNats, tmp_path: Path) -> AsyncIterator[Installation]:
    async with AsyncExitStack() as open_:
        made = Installation(database, nats.url, tmp_path, open_)
        await made.leads("scheduling", actor="scheduler@one", emits=TAKES)
        await made.leads("cluster", actor="simulator@two")
        await made.append(
            "scheduling", ConfigApplied(source="shipped profile", digest="ab" * 32, text="kind: Shipped\n")
        )
        yield made


async def run(installation: Installation, *arguments: str, env: Mapping[str, str] | None = None) -> Result:
    servers = {"KOORD_POSTGRES": installation.endpoints.postgres, "KOORD_NATS": installation.endpoints.nats}
    return await asyncio.to_thread(CliRunner().invoke, koord, arguments, env={**servers, **(env or {})})


async def test_status_shows_configurations_in_force_and_rejected_ones_with_path_and_reason(
    installation: Installation,
) -> None:
    refused = ConfigRejected(
        source="file /etc/koord.yaml", digest="cd" * 32, path="profiles[0]", reason="no such plugin"
    )
    await installation.append("scheduling", refused)
    found = json.loads((await run(installation, "get", "configs", "-o", "json")).stdout)["items"]
    assert [one["name"] for one in found] == ["scheduling"]
    assert (found[0]["in_force"]["source"], found[0]["in_force"]["seq"]) == ("shipped profile", 2)
    assert (found[0]["refused"]["path"], found[0]["refused"]["reason"]) == ("profiles[0]", "no such plugin")
    assert found[0]["refused"]["stands"] is True
    table = (await run(installation, "get", "configs")).stdout.splitlines()
    assert [line.split()[:3] for line in table[1:]] == [["scheduling", "shipped", "profile"]]
    assert "file /etc/koord.yaml" in table[1]
    assert "profiles[0]: no such plugin" in table[1]
    described = (await run(installation, "describe", "config", "scheduling")).stdout
    assert "In force:        shipped profile\n" in described
    assert "file /etc/koord.yaml at " in described
    assert described.endswith("Text:            kind: Shipped\n")
    await installation.append(
        "scheduling", ConfigApplied(source="file /etc/koord.yaml", digest="ef" * 32, text="kind: Mine\n")
    )
    later = json.loads((await run(installation, "get", "configs", "-o", "json")).stdout)["items"][0]
    assert (later["in_force"]["seq"], later["refused"]["stands"]) == (4, False)


async def test_all_faults_of_one_version_are_shown(installation: Installation) -> None:
    def refused(digest: str, path: str, reason: str) -> ConfigRejected:
        return ConfigRejected(source="ConfigMap a/b", digest=digest, path=path, reason=reason)

    await installation.append("scheduling", refused("01", "colocation-config", "an earlier version"))
    await installation.append(
        "scheduling", refused("02", "colocation-config: a", "is 1"), refused("02", "resource-qos-config: b", "is 2")
    )
    expected = "colocation-config: a: is 1; resource-qos-config: b: is 2"
    assert expected in (await run(installation, "get", "configs")).stdout
    assert expected in (await run(installation, "describe", "config", "scheduling")).stdout
    assert [expected in one.what for one in await installation.examine() if one.area == "configuration"] == [True]


async def test_a_configuration_whose_plugins_are_passed_over_is_in_force_in_part(installation: Installation) -> None:
    text = (
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{schedulerName: s, "
        "plugins: {multiPoint: {enabled: [{name: DynamicResources}]}}}]}"
    )
    assert "DynamicResources" in REGISTRY.unsupported
    await installation.append("scheduling", ConfigApplied(source="file /f", digest="ef" * 32, text=text))
    (found,) = json.loads((await run(installation, "get", "configs", "-o", "json")).stdout)["items"]
    missing = "profile s: plugin DynamicResources is not part of this release and is passed over"
    assert found["in_force"]["without_effect"] == [missing]
    table = (await run(installation, "get", "configs")).stdout
    assert "file /f (in part)" in table
    assert missing in table
    assert f"NOTE configuration: scheduling: of file /f: {missing}" in (await run(installation, "doctor")).stdout


async def test_defaults_in_place_of_a_configmap_are_called_defaults(installation: Installation) -> None:
    await installation.leads("slo", emits=(WriterStarted, ConfigApplied))
    source = "ConfigMap koordinator-system/slo-controller-config"
    await installation.append("slo", ConfigApplied(source=source, digest="00", text="{}"))
    assert f"defaults (no {source})" in (await run(installation, "get", "configs")).stdout
    described = (await run(installation, "describe", "config", "slo")).stdout
    assert f"In force:        defaults (no {source})\n" in described
    assert (
        f"slo: defaults (no {source}) are in force since slo/2"
        in (await run(installation, "doctor", "-o", "json")).stdout
    )


async def test_a_configmap_whose_documents_are_rejected_is_not_called_one_without_any(
    installation: Installation,
) -> None:
    await installation.leads("slo", emits=(WriterStarted, ConfigApplied))
    name = "koordinator-system/slo-controller-config"
    data = {"colocation-config": '{"enable":"yes"}'}
    observed = ObjectObserved(resource="configmaps", name=name, uid="u", object={"data": data})
    await installation.append("cluster", observed)
    await installation.append("slo", ConfigApplied(source=f"ConfigMap {name}", digest="00", text="{}"))
    words = f"defaults (ConfigMap {name} has no valid documents)"
    assert words in (await run(installation, "get", "configs")).stdout
    assert f"In force:        {words}\n" in (await run(installation, "describe", "config", "slo")).stdout
    assert words in (await run(installation, "doctor", "-o", "json")).stdout


async def test_a_deleted_configmap_that_stays_in_force_is_shown_as_deleted(installation: Installation) -> None:
    await installation.leads("slo", emits=(WriterStarted, ConfigApplied))
    name = "koordinator-system/slo-controller-config"
    text = json.dumps({"colocation-config": '{"enable":true}'})
    await installation.append("cluster", ObjectObserved(resource="configmaps", name=name, uid="u", object={"data": {}}))
    await installation.append("slo", ConfigApplied(source=f"ConfigMap {name}", digest="01", text=text))
    assert "deleted" not in (await run(installation, "get", "configs")).stdout
    await installation.append("cluster", ObjectDeleted(resource="configmaps", name=name, uid="u"))
    assert f"ConfigMap {name} (deleted)" in (await run(installation, "get", "configs")).stdout
    described = (await run(installation, "describe", "config", "slo")).stdout
    assert f"ConfigMap {name} was deleted at 20" in described
    assert "apply it without data to return to the defaults" in described
    [finding] = [one for one in await installation.examine() if "was deleted at" in one.what]
    assert (finding.severity, finding.do) == ("warning", "apply it without data to return to the defaults")


async def test_a_rejected_configmap_is_an_error_until_it_is_deleted(installation: Installation) -> None:
    await installation.leads("slo", emits=(WriterStarted, ConfigApplied))
    name = "koordinator-system/slo-controller-config"
    source = f"ConfigMap {name}"
    data = {"colocation-config": '{"enable":"yes","cpuReclaimThresholdPercnt":65}'}
    await installation.append(
        "cluster", ObjectObserved(resource="configmaps", name=name, uid="u", object={"data": data})
    )
    await installation.append("slo", ConfigApplied(source=source, digest="01", text='{"system-config":"{}"}'))
    await installation.append(
        "slo", ConfigRejected(source=source, digest="02", path="colocation-config", reason="no boolean")
    )
    found = await installation.examine()
    [refused] = [one.what for one in found if "was refused" in one.what]
    assert refused.endswith(": colocation-config: no boolean; what was valid in it by slo/2 stays in force")
    unread = "colocation-config: cpuReclaimThresholdPercnt has no effect; perhaps 'cpuReclaimThresholdPercent' is meant"
    assert [one.what for one in found if "Percnt" in one.what] == [f"slo: of {source}: {unread}"]
    await installation.append("cluster", ObjectDeleted(resource="configmaps", name=name, uid="u"))
    assert not [one for one in await installation.examine() if "was refused" in one.what]


async def test_names_in_slo_controller_config_that_nothing_reads_are_shown_with_the_closest(
    installation: Installation,
) -> None:
    await installation.leads("slo", emits=(WriterStarted, ConfigApplied))
    name = "koordinator-system/slo-controller-config"
    data = {"colocation-config": '{"enable":true,"cpuReclaimThresholdPercnt":65}', "cpu-burts-config": "{}"}
    text = json.dumps({"colocation-config": data["colocation-config"]})
    observed = ObjectObserved(resource="configmaps", name=name, uid="u", object={"data": data})
    await installation.append("cluster", observed)
    await installation.append("slo", ConfigApplied(source=f"ConfigMap {name}", digest="ab" * 32, text=text))
    unread = (
        "key cpu-burts-config has no effect; perhaps 'cpu-burst-config' is meant; "
        "colocation-config: cpuReclaimThresholdPercnt has no effect; perhaps 'cpuReclaimThresholdPercent' is meant"
    )
    table = (await run(installation, "get", "configs")).stdout
    assert f"ConfigMap {name} (in part)" in table
    assert unread in table
    assert f"WARNING configuration: slo: of ConfigMap {name}: {unread}" in (await run(installation, "doctor")).stdout


async def test_each_document_of_a_config_map_is_described_below_its_key(installation: Installation) -> None:
    await installation.leads("slo", emits=(WriterStarted, ConfigApplied))
    text = json.dumps({"colocation-config": '{\n  "enable": true\n}', "system-config": "{}"})
    await installation.append("slo", ConfigApplied(source="ConfigMap n/slo", digest="ab" * 32, text=text))
    described = (await run(installation, "describe", "config", "slo")).stdout
    assert [line.strip() for line in described.splitlines()[-6:]] == [
        "Text:            colocation-config:", "{", '"enable": true', "}", "system-config:", "{}"
    ]  # fmt: skip


async def test_the_text_in_force_is_shown_as_it_was_applied(installation: Installation) -> None:
    assert (
        await run(installation, "get", "config", "scheduling", "-o", "jsonpath={.text}")
    ).stdout == "kind: Shipped\n"
    for context in ("cluster", "nowhere"):
        for verb in ("get", "describe"):
            refused = await run(installation, verb, "config", context)
            assert (refused.exit_code, context in refused.stderr) == (1, True)


async def test_a_configuration_that_retention_carried_forward_is_still_in_force(installation: Installation) -> None:
    await installation.sql("delete from events_scheduling where seq = 2")
    taken = ConfigApplied(source="shipped profile", digest="ab" * 32, text="kind: Again\n")
    await installation.append(
        "scheduling",
        CarriedForward(name="shipped profile", original="scheduling/2", event=msgspec.Raw(msgspec.json.encode(taken))),
    )
    assert (await run(installation, "get", "config", "scheduling", "-o", "jsonpath={.text}")).stdout == "kind: Again\n"


async def test_top_shows_writers_heads_rates_and_lag_from_log_and_bus(installation: Installation) -> None:
    await installation.follows("scheduler", {"cluster": 0, "scheduling": 2})
    result = await run(installation, "top", "--once", "--every", "1.5", "-o", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    services = {one["service"]: (one["state"], one["replica"]) for one in found["services"]}
    assert services == {"scheduler": ("leading", "one"), "simulator": ("leading", "two")}
    contexts = {one["context"]: one for one in found["contexts"]}
    assert (contexts["scheduling"]["head"], contexts["scheduling"]["lag"]) == (2, {"scheduler": 0})
    assert contexts["cluster"]["lag"] == {"scheduler": 1}
    assert contexts["cluster"]["size_bytes"] > 0
    assert (found["bus"]["connected"], found["problems"]) == (True, [])


async def test_top_adds_the_statuses_of_services(installation: Installation) -> None:
    address = f"127.0.0.1:{free_port()}"
    reported = Status("scheduler", "leading", 7, 3, 12.5, 100, {"scheduling": 1}, bus=True)
    pages = await health.serve(address, lambda: reported, Metrics())
    await installation.follows("scheduler", {"scheduling": 2})
    addresses = f"scheduler=http://{address},absent=http://127.0.0.1:1"
    found = json.loads(
        (await run(installation, "top", "--once", "-o", "json", env={"KOORD_STATUSZ": addresses})).stdout
    )
    await pages.cleanup()
    (row,) = [one for one in found["services"] if one["service"] == "scheduler"]
    assert (row["lag"], row["epoch"], row["state"]) == (3, 7, "leading")
    assert row["rss_bytes"] > 2**20
    assert row["cpu_percent"] is not None
    assert "absent" not in {one["service"] for one in found["services"]}
    assert {one["context"]: one["lag"] for one in found["contexts"]}["scheduling"] == {"scheduler": 1}


async def test_the_doctor_names_senders_of_rejected_messages_by_the_statuses_of_named_processes(
    installation: Installation,
) -> None:
    address, now_ns = f"127.0.0.1:{free_port()}", time.time_ns()
    rejected = RejectedMessages("koord.node.n1.report", 12, "no report", now_ns, now_ns)
    reported = Status("metrics-ingest-0", "leading", 7, 3, 12.5, 100, {}, bus=True, rejected=(rejected,))
    pages = await health.serve(address, lambda: reported, Metrics())
    found = await run(installation, "doctor", env={"KOORD_STATUSZ": f"metrics-ingest-0-x=http://{address}"})
    await pages.cleanup()
    words = " ".join(found.stdout.split())
    assert "the login of node n1 sends messages on koord.node.n1.report that metrics-ingest-0-x rejects: 12" in words


async def test_top_once_waits_for_beacons_only_of_writers_without_a_status(installation: Installation) -> None:
    """It does not take the whole interval: with statuses of all, as beside `koord up`, half a second; a writer known by
    its beacons alone is not called silent before it could send one.
    """
    found, took_s = await timed(installation, "top", "--once", "--every", "30", "-o", "json")
    assert {one["state"] for one in found["services"]} == {"leading"}
    assert {one["has_beacon"] for one in found["contexts"] if one["writer"]} == {True}
    assert took_s < 15
    addresses = {name: f"127.0.0.1:{free_port()}" for name in ("scheduler", "simulator")}
    async with AsyncExitStack() as open_:
        for name, address in addresses.items():
            own = Status(name, "leading", 7, 3, 12.5, 100, {}, bus=True)
            pages = await health.serve(address, lambda own=own: own, Metrics())  # type: ignore[misc]
            open_.push_async_callback(pages.cleanup)
        statusz = ",".join(f"{name}=http://{address}" for name, address in addresses.items())
        found, took_s = await timed(installation, "top", "--once", "--every", "30", "-o", "json", KOORD_STATUSZ=statusz)
    assert {one["state"] for one in found["services"]} == {"leading"}
    assert took_s < 15


async def timed(installation: Installation, *arguments: str, **env: str) -> tuple[dict[str, Any], float]:
    """Runs a command within this process, so without imports; returns its JSON and the seconds it took."""
    began = time.monotonic()
    result = await run(installation, *arguments, env=env)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), time.monotonic() - began


async def test_top_without_a_bus_reports_it_and_shows_the_rest(installation: Installation) -> None:
    result = await run(installation, "top", "--once", "--every", "0.5", env={"KOORD_NATS": "nats://127.0.0.1:1"})
    assert result.exit_code == 0
    assert "NATS is not connected" in result.stderr
    assert "scheduler@one" in result.stdout


async def test_top_is_live_on_a_terminal_until_ctrl_c(installation: Installation) -> None:
    servers = {"KOORD_POSTGRES": installation.endpoints.postgres, "KOORD_NATS": installation.endpoints.nats}

    def watch() -> int:
        with Terminal(["top", "--every", "0.5"], servers) as terminal:
            terminal.wait_for(r"scheduling +2 ")
            terminal.wait_for(r"beacons/s")
            terminal.press(CTRL_C)
            return terminal.wait_for_end()

    assert await asyncio.to_thread(watch) == 130
