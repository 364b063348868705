"""The worked examples of spec/node-agent.md 2.3 and 8: E4 and E5."""

import pytest

from services.node_agent.cgroup.cpu_conversions import OutOfRange, quota, shares, shares_of_weight, weight


@pytest.mark.parametrize(
    ("milli", "found"), [(100, 102), (500, 512), (1, 2), (0, 2), (-1, 2), (1000, 1024), (300_000, 262_144)]
)
def test_e4_milli_cores_as_shares(milli: int, found: int) -> None:
    assert shares(milli) == found


@pytest.mark.parametrize(("of", "found"), [(2, 1), (102, 4), (512, 20), (1024, 39), (2048, 79), (262_144, 10_000)])
def test_e4_shares_as_a_weight(of: int, found: int) -> None:
    assert weight(of) == found


@pytest.mark.parametrize(("of", "found"), [(39, 998), (100, 2597), (1, 2), (10_000, 262_144)])
def test_e4_a_weight_as_shares(of: int, found: int) -> None:
    assert shares_of_weight(of) == found


@pytest.mark.parametrize("of", [0, 1, 262_145])
def test_invalid_shares_have_no_weight(of: int) -> None:
    with pytest.raises(OutOfRange, match=r"outside of 2\.\.262144"):
        weight(of)


@pytest.mark.parametrize("of", [0, 10_001])
def test_invalid_weights_have_no_shares(of: int) -> None:
    with pytest.raises(OutOfRange, match=r"outside of 1\.\.10000"):
        shares_of_weight(of)


@pytest.mark.parametrize(("milli", "found"), [(1500, 150_000), (5, 1000), (0, -1), (-3, -1)])
def test_e5_milli_cores_as_a_quota(milli: int, found: int) -> None:
    assert quota(milli) == found
