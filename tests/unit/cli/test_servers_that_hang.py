"""Messages about processes that exist and do not answer."""

import asyncio
import socket

from cli.bus_connection import NoLeader, because_of_postgres
from cli.doctor.check_services import about_writers
from shared.events import RecordedEvent
from shared.events.log import WriterStarted
from shared.log.admin.newest_events import Found

NOBODY = NoLeader("no gateway responded within 10 s: see that one leads (`koord top`), and its log")


def test_a_postgres_that_hangs_is_named_as_the_cause_of_a_request_without_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts into its backlog, and never answers
        postgres = f"postgresql://u@127.0.0.1:{listening.getsockname()[1]}/log"
        text = str(asyncio.run(because_of_postgres(NOBODY, postgres)))
    assert text.startswith("no gateway responded within 10 s: Postgres at postgresql://u@127.0.0.1:")
    assert "without it none leads; see that it runs: a process that hangs is to be ended" in text


def test_a_writer_whose_process_does_not_respond_is_named_with_how_to_end_it() -> None:
    started = WriterStarted(epoch=3, release="1", emits=())
    writers = {"scheduling": Found(RecordedEvent("scheduling", 9, started), "scheduler@scheduler")}
    [hangs] = about_writers(writers, {}, {"scheduler": None})
    assert hangs.what.endswith("sends no beacons, and process scheduler does not respond")
    assert "`kill -9`" in hangs.do
    [away] = about_writers(writers, {}, {})
    assert "`koord run scheduler`" in away.do
