"""The moves of PodMigrationJobs as `koord get evictions` lists them, and their ends in words."""

from cli.kinds.moves_by_jobs import listed_moves
from cli.scheduling.ended_moves import end_text
from cli.scheduling.why_eviction import explained
from shared.events import Event, RecordedEvent
from shared.events.migration import MigrationArbitrated, MigrationEnded, MigrationEvictionDecided

DRAINED = "drain-9-uid-1-1"
FORBIDDEN = MigrationEnded(
    job="move-own-3",
    job_uid="u3",
    phase="Failed",
    reason="ForbiddenMigratePod",
    message="it has no owner",
    pod="ns/own-3",
    pod_uid="p3",
)


def records(*events: Event) -> list[RecordedEvent]:
    return [RecordedEvent("descheduling", n, event, n) for n, event in enumerate(events, start=1)]


def decided(job: str, pod: str) -> MigrationEvictionDecided:
    return MigrationEvictionDecided(
        job=job, job_uid="u1", pod=pod, pod_uid="p", node="n0", destination="", controller="", method="", reason=""
    )


def test_moves_of_drains_and_clients_are_listed_with_their_ends_and_those_of_cases_are_not() -> None:
    found = listed_moves(
        records(
            MigrationArbitrated(job=DRAINED, job_uid="u1", pod="ns/own-1"),
            decided(DRAINED, "ns/own-1"),
            MigrationArbitrated(job="of-a-case", job_uid="u2", pod="ns/own-2"),
            MigrationEnded(job=DRAINED, job_uid="u1", phase="Succeeded", pod="ns/own-1", evicted_only=True),
            MigrationEnded(job=DRAINED, job_uid="u1", phase=""),  # the object was deleted after its end
            FORBIDDEN,
            MigrationArbitrated(job="open", job_uid="u4", pod="ns/own-4"),
        ),
        {"of-a-case"},
    )
    assert [(each.name, each.plugin, each.state, each.pods, each.nodes, each.why) for each in found] == [
        ("open", "PodMigrationJob", "open", ("ns/own-4",), (), ""),
        ("move-own-3", "PodMigrationJob", "failed", ("ns/own-3",), (), "ForbiddenMigratePod: it has no owner"),
        (DRAINED, "drain", "evicted", ("ns/own-1",), ("n0",), ""),
    ]


def test_a_failed_move_alone_explains_an_eviction_that_was_never_requested() -> None:
    found = explained("ns/own-3", records(FORBIDDEN), "")
    assert found is not None
    assert (found.state, found.pod_uid) == ("failed", "p3")
    assert found.summary == "PodMigrationJob move-own-3 failed (ForbiddenMigratePod): it has no owner"


def test_the_end_of_a_job_that_awaited_no_successor_is_no_move() -> None:
    ended = MigrationEnded(job="j", job_uid="u", phase="Succeeded", message="it is evicted", evicted_only=True)
    assert end_text(ended) == "PodMigrationJob j evicted it without waiting for a successor: it is evicted"
