"""The arguments of MigrationController: defaults and rejections, spec/descheduler.md 3.2."""

from typing import Any

import pytest

from services.descheduler.migration.controller_args import ObjectLimiter, read_args
from shared.domain.component_config import BadConfig
from shared.kube.instants import SECOND


def test_defaults_are_upstreams() -> None:
    args = read_args({}, "args")
    assert (args.max_per_node, args.max_globally, args.default_mode) == (2, 0, "ReservationFirst")
    assert (args.default_ttl_ns, args.evict_interval_ns, args.evict_burst) == (300 * SECOND, SECOND // 10, 1)
    assert args.object_limiters == {"workload": ObjectLimiter(300 * SECOND, None, 0)}
    assert (args.method, args.scheduler_names, args.interval_ns) == ("Eviction", ("koord-scheduler",), SECOND // 2)


def test_the_shipped_arguments_are_read() -> None:
    plain = {"namespaces": {"exclude": ["kube-system", "koordinator-system"]}, "evictQPS": "10", "evictBurst": 1}
    args = read_args(plain, "args")
    assert (args.exclude, args.evict_interval_ns) == (frozenset({"kube-system", "koordinator-system"}), SECOND // 10)


@pytest.mark.parametrize(
    ("plain", "path"),
    [
        ({"maxMigratingPerNod": 1}, ""),
        ({"maxMigratingPerNode": -1}, "args.maxMigratingPerNode"),
        ({"maxMigratingPerWorkload": "ten"}, "args.maxMigratingPerWorkload"),
        ({"namespaces": {"include": ["a"], "exclude": ["b"]}}, "args.namespaces"),
        ({"skipEvictionGates": ["Pvc"]}, "args.skipEvictionGates[0]"),
        ({"defaultJobMode": "Evict"}, "args.defaultJobMode"),
        ({"evictionPolicy": "Kill"}, "args.evictionPolicy"),
        ({"evictQPS": "0"}, "args.evictQPS"),
        ({"evictQPS": "fast"}, "args.evictQPS"),
        ({"defaultJobTTL": "-5m"}, "args.defaultJobTTL"),
        ({"objectLimiters": {"node": {"duration": "5m"}}}, "args.objectLimiters"),
        ({"objectLimiters": {"workload": {"duration": "soon"}}}, "args.objectLimiters.workload.duration"),
    ],
)
def test_a_bad_argument_is_rejected_with_its_path(plain: dict[str, Any], path: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_args(plain, "args")
    assert path in str(caught.value)
