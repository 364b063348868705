"""The policy of detection on one node: the strategy of its NodeSLO, complete with defaults."""

from typing import NamedTuple

from shared.domain.slo_defaults import DEFAULT_INTERFERENCE
from shared.domain.strategy_merge import merged
from shared.kube.instants import SECOND
from shared.kube.slo_config import InterferenceStrategy


class Policy(NamedTuple):
    """The fields of an InterferenceStrategy; durations in nanoseconds where a name ends so."""

    enable: bool
    deviation_percent: int
    standard_deviations: int
    sustain_ns: int
    recovery_ns: int
    learn_s: int
    half_life_s: int
    min_correlation_percent: int
    answer: str
    suppress_percent: int


def policy_of(strategy: InterferenceStrategy) -> Policy:
    """Returns the policy of a strategy; absent fields have their defaults."""
    whole = merged(DEFAULT_INTERFERENCE, strategy)
    return Policy(
        enable=bool(whole.enable),
        deviation_percent=whole.deviation_percent or 0,
        standard_deviations=whole.standard_deviations or 0,
        sustain_ns=(whole.sustain_seconds or 0) * SECOND,
        recovery_ns=(whole.recovery_seconds or 0) * SECOND,
        learn_s=whole.learn_seconds or 0,
        half_life_s=whole.half_life_seconds or 0,
        min_correlation_percent=whole.min_correlation_percent or 0,
        answer=whole.answer,
        suppress_percent=whole.suppress_percent or 0,
    )
