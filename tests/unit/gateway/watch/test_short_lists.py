"""Lists that lack many objects of the log."""

import pytest

from services.gateway.watch.incomplete_list_guard import SHOWN, ShortListLimits, ShortLists

LIMITS = ShortListLimits(percent=20, least=5)


def keys(count: int, start: int = 0) -> list[str]:
    return [f"shop/p-{number}" for number in range(start, start + count)]


@pytest.mark.parametrize(
    ("known", "missing", "short"),
    [
        (100, 100, True),
        (100, 21, True),
        (100, 20, False),
        (4, 4, True),
        (8, 2, True),
        (5, 5, True),
        (1000, 200, False),
        (0, 0, False),
    ],
)
def test_a_list_that_lacks_more_than_the_share_is_not_believed_at_once(
    known: int, missing: int, *, short: bool
) -> None:
    assert ShortLists(LIMITS).believes("pods", known, keys(missing)) is not short


def test_objects_that_the_list_has_added_do_not_make_its_lack_a_small_share() -> None:
    lists = ShortLists(LIMITS)
    assert not lists.believes("pods", 100, keys(10), added=90), "it lacks all that was known"
    assert lists.believes("pods", 100, keys(10))


def test_lists_of_nodes_pods_and_quotas_are_held() -> None:
    lists = ShortLists(LIMITS)
    resources = ["nodes", "pods", "elasticquotas.scheduling.sigs.k8s.io", "elasticquotas.koordinator.sh"]
    for _ in range(3):
        for resource in resources:
            assert not lists.believes(resource, 100, keys(100))
    assert list(lists.held) == resources


@pytest.mark.parametrize(("resource", "count"), [("configmaps", 100), ("pods", 4), ("elasticquotas.koordinator.sh", 4)])
def test_other_lists_are_believed_when_they_are_repeated(resource: str, count: int) -> None:
    lists = ShortLists(LIMITS)
    assert not lists.believes(resource, count, keys(count))
    assert not lists.held, "no operator is needed, and effects go on"
    assert lists.believes(resource, count, keys(count))


def test_a_repeated_list_that_lacks_a_large_share_of_others_is_repeated_again() -> None:
    lists = ShortLists(LIMITS)
    assert not lists.believes("pods", 8, keys(3))
    assert not lists.believes("pods", 8, keys(3, start=4))
    assert lists.believes("pods", 8, keys(3, start=4)), "a few more may have been deleted meanwhile"
    assert not lists.believes("pods", 5, keys(3)), "the next one is doubtful again"
    assert lists.believes("pods", 5, [])
    assert not lists.believes("pods", 5, keys(3))


def test_a_confirmation_stays_while_a_list_is_repeated_for_a_few_other_objects() -> None:
    lists = ShortLists(LIMITS)
    for _ in range(2):
        assert not lists.believes("pods", 10, keys(5))
        lists.show()
    assert lists.confirm("pods", 2)
    assert not lists.believes("pods", 10, keys(7))
    assert "pods" in lists.held
    assert lists.believes("pods", 10, keys(7))
    assert not lists.held


def test_a_list_that_is_complete_again_ends_the_hold() -> None:
    lists = ShortLists(LIMITS)
    assert not lists.believes("pods", 100, keys(50))
    assert [found.lists for found in lists.show()] == [1]
    assert lists.confirm("pods", 1) is None, "it has not been repeated"
    assert lists.believes("pods", 100, keys(3))
    assert not lists.held


def test_a_confirmed_list_is_believed_once_also_if_a_few_more_objects_are_gone() -> None:
    lists = ShortLists(LIMITS)
    for _ in range(2):
        assert not lists.believes("pods", 100, keys(50))
    assert lists.confirm("pods", 2) is None, "nobody has seen it"
    (shown,) = lists.show()
    assert lists.confirm("pods", 2) == shown
    assert (shown.known, shown.missing, len(shown.names), shown.lists) == (100, 50, 5, 2)
    assert "lacks 50 of 100" in str(shown)
    assert "and 45 more" in str(shown)
    assert lists.believes("pods", 100, keys(53))
    assert not lists.held
    assert not lists.believes("pods", 100, keys(50)), "the next short list needs its own confirmation"


def test_a_list_that_lacks_many_more_than_was_confirmed_is_held_again() -> None:
    lists = ShortLists(LIMITS)
    for _ in range(2):
        assert not lists.believes("pods", 100, keys(50))
    lists.show()
    assert not lists.believes("pods", 100, keys(90))
    lists.show()
    assert lists.confirm("pods", 2), "what was shown is confirmed, not what is missing now"
    assert not lists.believes("pods", 100, keys(90))
    assert lists.held["pods"].lists == 4


def test_only_the_newest_lists_that_were_shown_may_be_confirmed() -> None:
    lists = ShortLists(LIMITS)
    for _ in range(SHOWN + 2):
        lists.believes("pods", 100, keys(50))
        lists.show()
    assert lists.confirm("pods", 2) is None
    assert lists.confirm("pods", 3)
    assert lists.believes("pods", 100, [])
    assert lists.confirm("pods", 4) is None, "the list is believed again"
