"""The cluster that a log describes, and another one."""

import pytest

from shared.events.cluster import ClusterIdentified
from shared.kube.cluster_identity import WrongCluster, first_fact


def test_a_new_log_gets_the_cluster_that_was_reached() -> None:
    assert first_fact("", "uid-a", "x") == ClusterIdentified(cluster="uid-a")
    assert first_fact("uid-a", "uid-a", "x") is None


@pytest.mark.parametrize(
    ("recorded", "found", "named"),
    [
        ("uid-a", "uid-b", ["cluster uid-a", "cluster uid-b"]),
        ("simulated/7", "uid-b", ["the simulated cluster 7", "cluster uid-b"]),
        ("uid-a", "simulated/1", ["cluster uid-a", "the simulated cluster 1"]),
    ],
)
def test_another_cluster_is_refused_with_both_names_and_the_way_out(
    recorded: str, found: str, named: list[str]
) -> None:
    with pytest.raises(WrongCluster) as refused:
        first_fact(recorded, found, "the one at https://there")
    assert all(name in str(refused.value) for name in [*named, "https://there", "KOORD_POSTGRES", "koord up --dir"])
