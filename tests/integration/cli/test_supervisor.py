"""The supervisor with real processes that behave like services: they serve /statusz, end, or ignore SIGTERM."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import NotReady, Spec, Supervisor
from tests.support.waiting import until

SERVE = """
import asyncio, os, signal, sys
from shared.runtime.health import Metrics, serve
from shared.runtime.status import Status
async def main():
    phase = ["leading"]
    status = lambda: Status(os.environ["KOORD_REPLICA"], phase[0], 1, 3, 12.5, 99, {"cluster": 7}, True)
    ended = asyncio.Event()
    if "deaf" not in sys.argv:  # before its status is served: from then on it may be ended
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await serve(os.environ["KOORD_HTTP_ADDR"], status, Metrics())
    await ended.wait()
    print('{"level":"info","message":"drained"}', file=sys.stderr)
asyncio.run(main())
"""
FAIL = """import sys; print('{"level":"error","error":"BadSetting","message":"KOORD_X is 7"}', file=sys.stderr); sys.exit(1)"""

NOWHERE = Endpoints("postgresql://nowhere", "nats://nowhere")


def serving(name: str) -> Spec:
    return Spec(name, "scheduler", command=[sys.executable, "-c", SERVE])


async def test_a_service_reports_its_status_and_drains_at_the_end(tmp_path: Path) -> None:
    async with Supervisor([serving("one"), serving("two")], NOWHERE, tmp_path) as supervisor:
        await supervisor.wait_leading()
        unit = supervisor.units["one"]
        # `wait_leading` needs one leader; a process that has just begun would end by the signal itself.
        await until(lambda: all(each.status for each in supervisor.units.values()))
        assert unit.status
        assert (unit.status.service, unit.status.lag, unit.status.events_per_s) == ("one", 3, 12.5)
        ending = asyncio.create_task(supervisor.stop())
        shown = set()
        while not ending.done():
            shown |= {each.state for each in supervisor.units.values()}
            await asyncio.sleep(0)
        assert "down" not in shown, "a process whose end was requested has not failed"
        assert {each.state for each in supervisor.units.values()} == {"stopped"}
    assert {unit.process.exit_code for unit in supervisor.units.values()} == {0}
    assert "drained" in (tmp_path / "logs/one.log").read_text()


async def test_a_killed_service_is_started_again_and_the_supervisor_reports_the_reason(tmp_path: Path) -> None:
    async with Supervisor([serving("one")], NOWHERE, tmp_path) as supervisor:
        await supervisor.wait_leading()
        unit = supervisor.units["one"]
        before = unit.process.pid
        supervisor.kill("one")
        await supervisor.wait_until(lambda unit: unit.restarts == 1 and unit.state == "leading", 240, "back")
        assert unit.process.pid != before
        assert unit.why == "killed by SIGKILL"


async def test_a_service_that_cannot_start_is_tried_again_ever_more_slowly(tmp_path: Path) -> None:
    spec = Spec("broken", "scheduler", command=[sys.executable, "-c", FAIL])
    async with Supervisor([spec], NOWHERE, tmp_path) as supervisor:
        with pytest.raises(NotReady, match=r"broken is .*BadSetting: KOORD_X is 7"):
            await supervisor.wait_leading(timeout_s=2)
        assert 2 <= supervisor.units["broken"].restarts <= 4


async def test_an_end_of_the_supervisor_ends_a_service_that_ignores_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.supervisor.supervisor.DRAIN_S", 0.5)
    spec = Spec(
        "deaf",
        "scheduler",
        command=[sys.executable, "-c", f"import signal; signal.signal(15, signal.SIG_IGN)\n{SERVE}", "deaf"],
    )
    async with Supervisor([spec], NOWHERE, tmp_path) as supervisor:
        await supervisor.wait_leading()
    assert supervisor.units["deaf"].process.exit_code == -signal.SIGKILL
