"""A halted gateway, and one without its cluster, in every view."""

from pathlib import Path

from cli.processes.child_process import Process
from cli.supervisor.gateway_trouble import PageStatus, trouble_lines
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
