"""`koord doctor` names the senders of messages that services reject: nodes, operator and auditor too."""

from cli.credentials.permissions import declared_logins
from cli.doctor.check_rejected_messages import about_rejected
from cli.service_list import SERVICES
from shared.agents import subjects
from shared.kube.short_lists import CONFIRM
from shared.rejected_messages import MOST_SUBJECTS, REMEMBERED_NS, RejectedMessages, RejectionRecord
from shared.runtime.status import Status

LOGINS = declared_logins(SERVICES, 1)


def status(*rejected: RejectedMessages) -> Status:
    return Status("x", "leading", 1, 0, 0, 0, {}, bus=True, rejected=rejected)


def sent(subject: str) -> str:
    rejected = RejectedMessages(subject, 3, "no JSON\nat 0", 10**9, 2 * 10**9)
    (found,) = about_rejected({"a": status(rejected), "b": status(rejected), "c": status(), "d": None}, LOGINS)
    return f"{found.what} / {found.do}"


def test_a_node_is_named_by_its_subject() -> None:
    assert sent(subjects.subject("rack.1", "report")) == (
        "the login of node rack.1 sends messages on koord.node.rack%2E1.report that a, b rejects: 3 since "
        "1970-01-01T00:00:01Z, the newest for: no JSON at 0 / see the node's agent: its clock, its release, its log; if "
        "another program uses the login: `koord credentials rotate DIR rack%2E1`"
    )


def test_others_are_named_by_who_may_use_the_subject() -> None:
    assert sent(CONFIRM).startswith("the login operator sends")
    assert sent("koord.log.read.*").startswith("the login operator or auditor sends")
    assert sent("koord.nobody").startswith("a sender without a login of this installation sends")


def test_a_sender_on_many_subjects_is_named_once() -> None:
    streams = [f"$JS.API.CONSUMER.INFO.KOORD_EVENTS_{name}.x" for name in ("AUDIT", "CLUSTER", "QUOTA", "SLO")]
    many = [RejectedMessages(f"{one[:-1]}{n}", 2, f"reason {n}", 10**9, n) for one in streams for n in range(3)]
    (found,) = about_rejected({"audit": status(*many)}, LOGINS)
    assert found.what.startswith(f"the login auditor sends messages on {many[0].subject}, ")
    assert found.what.endswith(
        "and 7 more subjects that audit rejects: 24 since 1970-01-01T00:00:01Z, the newest for: reason 2"
    )


def test_many_senders_are_counted() -> None:
    many = [RejectedMessages(subjects.subject(f"n{i}", "report"), 1, "x", 1, 1) for i in range(12)]
    assert [one.what for one in about_rejected({"a": status(*many)}, LOGINS)][-1] == (
        "messages of 2 more senders are rejected"
    )


def test_the_record_counts_by_subject_and_forgets() -> None:
    now = [10**9]
    record = RejectionRecord(lambda: now[0])
    record.add("s", "first")
    now[0] += 1
    record.add("s", "x" * 10_000)
    (found,) = record.newest()
    assert (found.count, found.since_ns, found.last_ns, len(found.reason)) == (2, 10**9, 10**9 + 1, 200)
    now[0] += REMEMBERED_NS + 1
    assert record.newest() == ()
    record.add("s", "again")
    assert [one.count for one in record.newest()] == [1]
    for number in range(2 * MOST_SUBJECTS):
        record.add(f"n{number}", "x")
    assert len(record.newest()) == MOST_SUBJECTS
