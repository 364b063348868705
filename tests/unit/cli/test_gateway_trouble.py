"""A halted gateway, and one without its cluster, in every view."""

import socket
from pathlib import Path

from cli.processes.child_process import Process
from cli.supervisor.gateway_trouble import NOT_SERVED, PageStatus, page_of, scheduler_lines, trouble_lines
from cli.supervisor.server_notes import hang_of
from cli.supervisor.status_view import cells
from cli.supervisor.supervisor import Spec, Unit
from cli.top import table
from cli.top.readings import Reading
from cli.top.summary import summarise
from services.gateway.watch.incomplete_list_guard import ShortListLimits, ShortLists
from shared.runtime.health import ready_text
from shared.runtime.status import Status
from shared.unreachable import Unreachable

QUOTAS = [f"team/q{number}" for number in range(6)]
AWAY = Unreachable("the API server at https://kube:6443", 1_800_000_000_000_000_000, "no response in time")
HALT = (
    "effects are stopped since 2027-01-15T08:00:00Z: the list of elasticquotas.scheduling.sigs.k8s.io lacks 6 of 6 that "
    "the log has: team/q0, team/q1, team/q2, team/q3, team/q4 and 1 more; confirm it if they are gone (`koord cluster confirm`)"
)


def halts(lists: int) -> list[str]:
    instants = iter((AWAY.since_ns,))  # the first of the short lists counts
    short = ShortLists(ShortListLimits(percent=50, least=5), instants.__next__)
    for _ in range(lists):
        assert not short.believes("elasticquotas.scheduling.sigs.k8s.io", 6, QUOTAS)
    found = short.halts()
    assert short.confirm("elasticquotas.scheduling.sigs.k8s.io", lists) is None, "nobody was shown it"
    return found


def status(*halted: str, unreachable: tuple[Unreachable, ...] = ()) -> Status:
    return Status("gateway", "leading", 1, 0, 0.0, 0, {}, bus=True, halted=halted, unreachable=unreachable)


def test_a_list_that_is_not_believed_is_a_halt_with_what_to_do() -> None:
    assert halts(2) == [HALT]
    assert halts(1)[0].endswith("; it is being repeated")


def test_readyz_top_and_the_table_name_a_halt(tmp_path: Path) -> None:
    halted = status(HALT)
    assert ready_text(halted).splitlines() == ["leading", HALT]
    summary = summarise(None, Reading(0.0, 0, {}, [], {"gateway": halted}, []), {})
    assert table.service_cells(summary.services[0])[2] == "leading (halted)"
    assert table.trouble_lines(summary) == [f"gateway: {HALT}"]
    unit = Unit(Spec("gateway", "gateway"), Process("gateway", ["true"], tmp_path / "log"), "127.0.0.1:1")
    unit.status = halted
    assert cells(unit)[-1] == HALT


def test_an_answer_from_the_log_names_what_the_log_does_not_have() -> None:
    halt, away = trouble_lines([PageStatus("gateway", "leading", (HALT,), (AWAY,))])
    assert halt == HALT
    assert away == (
        "the log is older than the cluster: the gateway cannot reach the API server at https://kube:6443 since "
        "2027-01-15T08:00:00Z: no response in time"
    )
    bus = Unreachable("NATS at nats://kube:4222", 0, "Connection refused")
    assert list(trouble_lines([PageStatus("gateway", "leading", (), (bus,))])) == []
    [silent] = trouble_lines([None])
    assert silent.startswith("the gateway does not respond")


NO_BUS = Unreachable("NATS at nats://127.0.0.1:4222", AWAY.since_ns, "the connection was lost")


def test_a_scheduler_without_nats_is_why_pods_of_a_quota_wait() -> None:
    without = PageStatus("scheduler", "leading", (), (NO_BUS,))
    (line,) = scheduler_lines([without])
    assert line == (
        "no pod of a quota is placed, since no charge can be requested: the scheduler cannot reach NATS at "
        "nats://127.0.0.1:4222 since 2027-01-15T08:00:00Z: the connection was lost"
    )
    assert list(scheduler_lines([PageStatus("scheduler", "leading"), None])) == []


def test_a_scheduler_that_has_not_started_is_not_called_one_that_hangs() -> None:
    (hangs,), (starts,) = scheduler_lines([None]), scheduler_lines([NOT_SERVED])
    assert hangs == (
        "the scheduler does not respond: no pod is placed until it does, whatever a pod waits for by the log; `koord "
        "doctor` has the remedy"
    )
    assert starts.startswith(
        "the scheduler does not run yet: no pod is placed until it does, whatever a pod waits for by the log"
    )
    assert "the first start of an installation compiles for a minute or more" in starts
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts into its backlog, and never answers
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        assert page_of(address) is None
    assert page_of(address) == NOT_SERVED


def test_a_nats_that_hangs_is_named_with_its_process(tmp_path: Path) -> None:
    unit = Unit(Spec("gateway", "gateway"), Process("gateway", ["true"], tmp_path / "log"), "127.0.0.1:1")
    unit.status = status(unreachable=(NO_BUS,))
    assert hang_of("NATS", [unit], 77, NO_BUS.since_ns + 5 * 10**9) == (
        "NATS (process 77) does not respond since 2027-01-15T08:00:00Z, and the services wait for it: `kill -9 77`, and it "
        "is started again"
    )
    assert hang_of("NATS", [unit], 77, NO_BUS.since_ns + 4 * 10**9) == "", "it may have been started again"
    assert hang_of("Postgres", [unit], 77, NO_BUS.since_ns + 5 * 10**9) == ""
