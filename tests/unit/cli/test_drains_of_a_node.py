"""The drains of a node as commands describe them."""

from cli.commands.drain import headline
from cli.node.drains_of_node import cordoned, drain_step, last_drain, outcome_lines, waiting_for_cordon
from shared.events import Event, RecordedEvent
from shared.events.migration import DrainEnded, DrainRequested
from shared.kube.drain_control import DrainedPod, DrainStatus

REQUESTED = DrainRequested(node="n0", by="root", reason="new disks")
ENDED = DrainEnded(node="n0", moved=1, evicted=2, remaining={"d/agent": "a DaemonSet owns it"})
UNCORDON = "`kubectl uncordon n0`"


def records(*events: Event) -> list[RecordedEvent]:
    """Events of `descheduling`, at the instants 10, 20, ..."""
    return [RecordedEvent("descheduling", 10 * n, event, 10 * n) for n, event in enumerate(events, start=1)]


def test_a_cordon_during_a_drain_names_it_and_is_ended_by_its_cancellation_first() -> None:
    text, remedy = cordoned("n0", last_drain(records(REQUESTED)), 15, simulated=False)
    assert text == "it is cordoned, and the drain by root: new disks goes on (descheduling/10)"
    assert remedy == f"`koord drain n0 --cancel`, then {UNCORDON}"


def test_a_drain_whose_node_was_uncordoned_is_open_until_it_is_cancelled() -> None:
    assert waiting_for_cordon("n0", last_drain(records(REQUESTED))) == (
        "the drain by root: new disks (descheduling/10) is open: it goes on once the node is cordoned; "
        "`koord drain n0 --cancel` ends it"
    )
    assert waiting_for_cordon("n0", last_drain(records(REQUESTED, ENDED))) == waiting_for_cordon("n0", None) == ""


def test_a_cordon_after_a_drain_names_its_outcome() -> None:
    text, remedy = cordoned("n0", last_drain(records(REQUESTED, ENDED)), 15, simulated=False)
    assert text == (
        "it is cordoned; the drain by root: new disks ended by itself, since no pod was left that may move: 1 pod moved, "
        "2 pods evicted without waiting for a successor; 1 pod stayed (descheduling/20)"
    )
    assert remedy == UNCORDON


def test_a_cordon_that_began_after_the_drain_is_not_its_own() -> None:
    assert cordoned("n0", last_drain(records(REQUESTED, ENDED)), 25, simulated=False) == ("it is cordoned", UNCORDON)
    assert cordoned("n0", last_drain([]), 25, simulated=False) == ("it is cordoned", UNCORDON)


def test_the_outcome_of_a_drain_lists_the_pods_that_stayed_and_who_ended_it() -> None:
    early = DrainEnded(node="n0", moved=0, remaining={"d/a": "its turn had not come"}, by="bob", moving=("d/b",))
    last = last_drain(records(REQUESTED, early))
    assert last is not None
    first, second = outcome_lines(last, "n0")
    assert first.endswith("was ended early by bob: 0 pods moved; jobs that had begun went on for d/b; 1 pod stayed")
    assert second == "  d/a stayed: its turn had not come"
    assert drain_step(REQUESTED) == "a drain was requested by root: new disks"


def test_a_drain_without_its_request_in_the_log_is_described_by_its_end() -> None:
    last = last_drain(records(ENDED))
    assert last is not None
    assert last.requested is None
    assert next(outcome_lines(last, "n0")).startswith("the last drain, at 1970-")


def test_a_drain_whose_node_was_uncordoned_is_described_as_waiting_for_the_cordon() -> None:
    pods = (DrainedPod("d/web-1", "next", ""),)
    waiting = headline(DrainStatus("n0", draining=True, pods=pods), "start")
    assert waiting.endswith(
        "0 pods moved so far; 1 pod to move; it goes on once the node is cordoned: `koord drain n0 --cancel` ends it"
    )
    going_on = headline(DrainStatus("n0", draining=True, pods=pods, cordoned=True), "start")
    assert going_on.endswith("1 pod to move")


def test_a_drain_that_moves_nothing_ends_once_the_node_is_cordoned_and_not_before() -> None:
    """While effects are stopped nothing cordons it: the drain goes on for as long."""
    pods = (DrainedPod("d/agent", "stays", "a DaemonSet owns it"),)
    ends = "; it ends by itself once the node is cordoned: `koord drain n0 --dry-run` shows the outcome"
    assert headline(DrainStatus("n0", draining=True, pods=pods), "start").endswith(ends)
    assert headline(DrainStatus("n0", draining=True), "start").endswith(ends)
    cordoned_one = headline(DrainStatus("n0", draining=True, pods=pods, cordoned=True), "start")
    assert "; it ends by itself at once: " in cordoned_one


def test_a_drain_that_is_ended_before_the_node_was_cordoned_promises_no_cordon() -> None:
    early = DrainEnded(node="n0", moved=0, remaining={}, by="bob", not_cordoned=True)
    last = last_drain(records(REQUESTED, early))
    assert last is not None
    assert next(outcome_lines(last, "n0")).endswith("was ended early by bob: 0 pods moved; the node was not cordoned")
    text = headline(DrainStatus("n0"), "cancel")
    assert text.endswith("0 pods moved; the node is not cordoned, and this drain does not cordon it any more")
