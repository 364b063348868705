"""One document over another, by the worked examples of spec/slo-controller.md 0.4."""

from shared.domain.strategy_merge import merged
from shared.kube.slo_config import (
    AggregatePolicy,
    BlkioQos,
    Block,
    ColocationStrategy,
    IoCfg,
    NormalizationStrategy,
    RatioModel,
    SystemStrategy,
)


def test_g1_an_empty_document_changes_nothing() -> None:
    old = ColocationStrategy(cpu_reclaim_threshold_percent=60)
    assert merged(old, ColocationStrategy()) == old


def test_g2_an_explicit_false_takes_precedence() -> None:
    assert merged(ColocationStrategy(enable=True), ColocationStrategy(enable=False)).enable is False


def test_g3_elements_of_lists_merge_by_index() -> None:
    old = BlkioQos(blocks=(Block(name="x", type="device", io_cfg=IoCfg(read_bps=100)),))
    new = BlkioQos(blocks=(Block(name="y", io_cfg=IoCfg(write_bps=5)),))
    assert merged(old, new).blocks == (Block(name="y", type="device", io_cfg=IoCfg(read_bps=100, write_bps=5)),)


def test_a_list_takes_the_new_length() -> None:
    old = BlkioQos(blocks=(Block(name="x"), Block(name="y")))
    assert merged(old, BlkioQos(blocks=(Block(type="device"),))).blocks == (Block(name="x", type="device"),)
    assert [b.name for b in merged(BlkioQos(blocks=old.blocks[:1]), BlkioQos(blocks=old.blocks)).blocks] == ["x", "y"]


def test_g4_an_absent_bandwidth_resets_the_old_one() -> None:
    after = merged(SystemStrategy(total_network_bandwidth="10M"), SystemStrategy(min_free_kbytes_factor=100))
    assert after == SystemStrategy(total_network_bandwidth="0", min_free_kbytes_factor=100)


def test_g5_durations_are_replaced() -> None:
    old = AggregatePolicy(durations=("5m", "10m", "30m"))
    assert merged(old, AggregatePolicy(durations=("1m",))).durations == ("1m",)


def test_g6_an_entry_of_a_map_is_replaced_whole() -> None:
    old = NormalizationStrategy(ratio_model={"A": RatioModel(base_ratio=1.5, turbo_enabled_ratio=2)})
    new = NormalizationStrategy(ratio_model={"A": RatioModel(base_ratio=1.2), "B": RatioModel(base_ratio=1.1)})
    assert merged(old, new).ratio_model == {"A": RatioModel(base_ratio=1.2), "B": RatioModel(base_ratio=1.1)}
