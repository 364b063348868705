"""Messages about processes that exist and do not answer."""

import asyncio
import socket
import time
from contextlib import AsyncExitStack

import pytest

from cli import silent_service
from cli.bus_connection import request_leading
from cli.doctor.all_checks import _bus
from cli.doctor.check_services import about_writers
from cli.doctor.finding import Finding
from cli.processes.free_ports import free_port
from cli.silent_service import NoLeader, unless_silent
from cli.supervisor.endpoints import Endpoints
from cli.top import readings
from cli.top.readings import Instruments
from cli.top.summary import summarise
from shared.errors import KoordError
from shared.events import RecordedEvent
from shared.events.log import WriterStarted
from shared.kube.short_lists import SHORT_LISTS
from shared.log.admin.newest_events import Found
from shared.log.admin.session import opened
from shared.runtime import health
from shared.runtime.health import Metrics
from shared.runtime.status import Status
from shared.unreachable import Unreachable


@pytest.mark.parametrize("is_started_again", [False, True])
async def test_a_postgres_that_hangs_is_named_as_the_cause_of_a_request_without_answer(
    monkeypatch: pytest.MonkeyPatch, *, is_started_again: bool
) -> None:
    """Services that start again have no page meanwhile: the request waited for 13 s."""
    monkeypatch.setattr(silent_service, "POSTGRES_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts into its backlog, and never answers
        postgres = f"postgresql://u@127.0.0.1:{listening.getsockname()[1]}/log"
        services = {"gateway": f"127.0.0.1:{free_port()}"} if is_started_again else {}
        with pytest.raises(NoLeader) as nobody:
            await unless_silent(asyncio.sleep(9), "gateway", Endpoints(postgres, "", services=services))
    text = str(nobody.value)
    assert text.startswith("no gateway responds: Postgres at postgresql://u@127.0.0.1:")
    assert "without it none leads; see that it runs: a process that hangs is to be ended" in text


def test_a_bus_that_hangs_is_the_cause_of_a_request_without_answer_and_one_that_is_away_too(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """koord cluster status waited for 13 s, and named a gateway."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        nats = f"nats://127.0.0.1:{listening.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(KoordError) as hangs:
            asyncio.run(request_leading(Endpoints("", nats), "koord cluster", "gateway", SHORT_LISTS))
        assert time.monotonic() - began < 6
        found, _ = asyncio.run(_bus_found(nats))
    assert str(hangs.value).startswith(f"the gateway cannot be requested: NATS at {nats} cannot be reached: ")
    for text in (str(hangs.value), found.do):
        assert "see that it runs: a process that hangs is to be ended" in text
    with pytest.raises(KoordError, match=r"Connect.*; start it, or correct KOORD_NATS$"):
        asyncio.run(request_leading(Endpoints("", "nats://127.0.0.1:1"), "koord cluster", "gateway", SHORT_LISTS))
    assert capfd.readouterr().err == ""


@pytest.fixture
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_service, "FIRST_S", 0.1)
    monkeypatch.setattr(silent_service, "NEXT_S", 0.05)


async def test_a_request_to_a_process_that_hangs_ends_early_and_names_it() -> None:
    """koord evictions status waited for 13 s."""
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pages = {"gateway": f"127.0.0.1:{listening.getsockname()[1]}"}
        with pytest.raises(NoLeader, match=r"no gateway responds: its process hangs; `koord doctor` has the remedy"):
            await unless_silent(asyncio.sleep(10), "gateway", Endpoints("", "", services=pages))
    assert time.monotonic() - began < 6


@pytest.mark.parametrize(
    ("state", "away", "expected"),
    [
        ("starting", True, "no gateway responds: it cannot reach Postgres at 127.0.0.1:5432 since 2027"),
        ("leading", True, "the answer"),  # it answers, though it has another trouble
        ("starting", False, "the answer"),
    ],
)
@pytest.mark.usefixtures("_short_pauses")
async def test_a_request_waits_for_a_service_that_may_lead(state: str, *, away: bool, expected: str) -> None:
    postgres = Unreachable("Postgres at 127.0.0.1:5432", 1_800_000_000_000_000_000, "no response in time")
    status = Status("gateway", state, 1, 0, 0.0, 0, {}, bus=True, unreachable=(postgres,) if away else ())
    address = f"127.0.0.1:{free_port()}"
    pages = await health.serve(address, lambda: status, Metrics())
    try:
        found = await unless_silent(
            asyncio.sleep(0.5, "the answer"), "gateway", Endpoints("", "", services={"gateway": address})
        )
    except NoLeader as error:
        found = str(error)
    finally:
        await pages.cleanup()
    assert found.startswith(expected)


@pytest.mark.usefixtures("_short_pauses")
async def test_a_request_waits_for_a_process_that_is_started_again() -> None:
    pages = {"gateway": f"127.0.0.1:{free_port()}", "gateway-1": f"127.0.0.1:{free_port()}"}
    assert (
        await unless_silent(asyncio.sleep(0.5, "the answer"), "gateway", Endpoints("", "", services=pages))
        == "the answer"
    )


async def test_top_waits_once_for_a_postgres_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """koord top --once took 9 s: each of its two looks waited."""
    monkeypatch.setattr(readings, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with opened(f"postgresql://u@127.0.0.1:{listening.getsockname()[1]}/log") as database:
            instruments = Instruments(database, {})
            first = await instruments.read()
            began = time.monotonic()
            second = await instruments.read()
            assert time.monotonic() - began < 0.4
            await instruments.close()
    assert first.problems == second.problems
    assert first.problems[0].startswith("Postgres: no response in time; see that it runs: ")


async def test_top_has_a_row_of_a_service_that_has_not_responded_yet() -> None:
    """While the scheduler compiled, koord top had eight rows for the nine services of koord up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts into its backlog, and never answers
        pages = {"audit": f"127.0.0.1:{listening.getsockname()[1]}", "scheduler": f"127.0.0.1:{free_port()}"}
        async with opened("postgresql://u@127.0.0.1:1/log") as database:
            kept, given = Instruments(database, pages, are_kept=True), Instruments(database, pages)
            rows = summarise(None, await kept.read(), {}).services
            assert [(row.service, row.state) for row in rows] == [("audit", "silent"), ("scheduler", "starting")]
            assert summarise(None, await given.read(), {}).services == [], "they may not be part of the installation"
            await kept.close()
            await given.close()


async def _bus_found(nats: str) -> tuple[Finding, object]:
    async with AsyncExitStack() as open_:
        [found], received = await _bus(nats, open_)
        return found, received


def test_contexts_that_no_beacon_confirms_are_one_note_beside_the_error_about_the_bus() -> None:
    started = WriterStarted(epoch=3, release="1", emits=())
    found = {name: Found(RecordedEvent(name, 9, started), f"{name}@x") for name in ("cluster", "scheduling")}
    [note] = about_writers(found, None)
    assert note.severity == "note"
    assert "cluster is led by cluster@x, epoch 3, release 1; scheduling is led by" in note.what


def test_a_writer_whose_process_does_not_respond_is_named_with_how_to_end_it() -> None:
    started = WriterStarted(epoch=3, release="1", emits=())
    writers = {"scheduling": Found(RecordedEvent("scheduling", 9, started), "scheduler@scheduler")}
    [hangs] = about_writers(writers, {}, {"scheduler": None})
    assert hangs.what.endswith("sends no beacons, and process scheduler does not respond")
    assert "`kill -9`" in hangs.do
    [away] = about_writers(writers, {}, {})
    assert "`koord run scheduler`" in away.do
