"""The scheduler's answer to the descheduler: one transaction for all pods, each still counted on its own node."""

from collections.abc import Mapping

import msgspec
import pytest

from services.scheduler.extender_server.destinations_of_moves import destinations
from shared.domain.move_destinations import (
    MOST_MOVES,
    BadMovesMessage,
    DestinationsRequest,
    Move,
    decode_request,
)
from tests.unit.descheduler.small_cluster import SmallCluster


def cluster_of(pods: Mapping[str, tuple[str, str]]) -> SmallCluster:
    """Two nodes of 10 cores, and pods by name: node and cpu."""
    cluster = SmallCluster()
    for name in ("a", "b"):
        cluster.node(name)
    for name, (node, cpu) in pods.items():
        cluster.pod(name, node, cpu=cpu)
    return cluster


def test_a_pod_that_has_a_destination_counts_there_for_those_behind_it() -> None:
    cluster = cluster_of({"first": ("a", "3"), "second": ("a", "3"), "there": ("b", "5")})
    found = destinations(cluster.scheduler.cache, [Move("first"), Move("second")], cluster.now_ns)
    assert found.nodes == {"first": "b"}
    assert found.refused == {"second": "no other node admits the pod"}


def test_pods_that_swap_nodes_each_need_room_beside_the_other() -> None:
    cluster = cluster_of({"first": ("a", "6"), "second": ("b", "6")})
    found = destinations(cluster.scheduler.cache, [Move("first"), Move("second")], cluster.now_ns)
    assert found.nodes == {}  # a place is held before a pod leaves, so neither node has 6 cores for the other


def test_excluded_nodes_and_pods_that_are_gone_have_no_destination() -> None:
    cluster = cluster_of({"first": ("a", "1")})
    found = destinations(cluster.scheduler.cache, [Move("first", ("b",)), Move("nobody")], cluster.now_ns)
    assert found.nodes == {}
    assert found.refused == {"first": "no other node admits the pod", "nobody": "the pod is gone"}


def test_a_pod_that_may_go_to_one_node_alone_goes_there_or_nowhere() -> None:
    cluster = cluster_of({"first": ("a", "3"), "there": ("b", "8")})
    cluster.node("c")
    cluster.node("d")
    found = destinations(cluster.scheduler.cache, [Move("first", only="d")], cluster.now_ns)
    assert found.nodes == {"first": "d"}
    for only in ("b", "unknown"):
        found = destinations(cluster.scheduler.cache, [Move("first", only=only)], cluster.now_ns)
        assert found.refused == {"first": f"node {only} does not admit the pod"}


def test_the_answer_changes_nothing() -> None:
    cluster = cluster_of({"first": ("a", "3"), "there": ("b", "5")})
    once = destinations(cluster.scheduler.cache, [Move("first")], cluster.now_ns)
    assert once == destinations(cluster.scheduler.cache, [Move("first")], cluster.now_ns)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"moves": 3}', b'{"moves": [{"uid": "p"}]}'])
def test_a_request_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(BadMovesMessage):
        decode_request(data)


def test_a_request_for_too_many_pods_is_refused() -> None:
    request = DestinationsRequest(tuple(Move(str(number)) for number in range(MOST_MOVES + 1)))
    with pytest.raises(BadMovesMessage, match=f"at most {MOST_MOVES}"):
        decode_request(msgspec.json.encode(request))
