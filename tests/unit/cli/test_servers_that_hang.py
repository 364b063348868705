"""Messages about processes that exist and do not answer."""

import asyncio
import socket
import time
from contextlib import AsyncExitStack

import pytest

from cli.bus_connection import NoLeader, because_of_postgres, request_leading_gateway
from cli.doctor.all_checks import _bus
from cli.doctor.check_services import about_writers
from cli.doctor.finding import Finding
from shared.errors import KoordError
from shared.events import RecordedEvent
from shared.events.log import WriterStarted
from shared.kube.short_lists import SHORT_LISTS
from shared.log.admin.newest_events import Found

NOBODY = NoLeader("no gateway responded within 10 s: see that one leads (`koord top`), and its log")


def test_a_postgres_that_hangs_is_named_as_the_cause_of_a_request_without_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts into its backlog, and never answers
        postgres = f"postgresql://u@127.0.0.1:{listening.getsockname()[1]}/log"
        text = str(asyncio.run(because_of_postgres(NOBODY, postgres)))
    assert text.startswith("no gateway responded within 10 s: Postgres at postgresql://u@127.0.0.1:")
    assert "without it none leads; see that it runs: a process that hangs is to be ended" in text


def test_a_bus_that_hangs_is_the_cause_of_a_request_without_answer_and_one_that_is_away_too(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """koord cluster status waited for 13 s, and named a gateway."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        nats = f"nats://127.0.0.1:{listening.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(KoordError) as hangs:
            asyncio.run(request_leading_gateway(nats, "koord cluster", SHORT_LISTS))
        assert time.monotonic() - began < 6
        found, _ = asyncio.run(_bus_found(nats))
    assert str(hangs.value).startswith(f"the gateway cannot be requested: NATS at {nats} cannot be reached: ")
    for text in (str(hangs.value), found.do):
        assert "see that it runs: a process that hangs is to be ended" in text
    with pytest.raises(KoordError, match=r"Connect.*; start it, or correct KOORD_NATS$"):
        asyncio.run(request_leading_gateway("nats://127.0.0.1:1", "koord cluster", SHORT_LISTS))
    assert capfd.readouterr().err == ""


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
