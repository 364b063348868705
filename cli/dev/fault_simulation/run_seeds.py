"""Runs many seeds, in several processes, and shrinks what fails."""

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import msgspec

from cli.dev.fault_simulation.plan import Plan, drawn
from cli.dev.fault_simulation.run_world import settle_memory, simulate
from cli.dev.fault_simulation.shrink import shrunk, signature
from shared.runtime.garbage_collection import collect_seldom

SHRUNK = 3
"""Failures of a run that are shrunk; each takes up to a minute."""


class Failure(msgspec.Struct, frozen=True):
    """A seed that breaks an invariant.

    Attributes:
        plan: shrunk, if it was.
    """

    seed: int
    violations: tuple[str, ...]
    plan: Plan


class Result(msgspec.Struct, frozen=True):
    """Outcome of many seeds.

    Attributes:
        violations: number of seeds that break an invariant.
        steps: callbacks that ran.
    """

    seeds: int
    violations: int
    seeds_per_s: float
    steps: int
    failures: tuple[Failure, ...]


class _Ran(msgspec.Struct, frozen=True):
    failure: Failure | None
    steps: int


def run(seeds: Sequence[int], processes: int, *, moves_pods: bool = False) -> Result:
    """Runs the seeds; for `moves_pods` see `drawn`."""
    began = time.monotonic()
    ran = list(_all(seeds, processes, partial(_one, moves_pods=moves_pods)))
    failures = [each.failure for each in ran if each.failure is not None]
    found = [shrunk_failure(failure) if number < SHRUNK else failure for number, failure in enumerate(failures)]
    took_s = time.monotonic() - began
    return Result(
        seeds=len(ran),
        violations=len(failures),
        seeds_per_s=round(len(ran) / max(took_s, 1e-9), 2),
        steps=sum(each.steps for each in ran),
        failures=tuple(found),
    )


def shrunk_failure(failure: Failure) -> Failure:
    """Returns the failure with the shortest plan that breaks the same invariant first."""
    broken = signature(failure.violations[0])

    def breaks(plan: Plan) -> bool:
        violations = simulate(failure.seed, plan).violations
        settle_memory()
        return bool(violations) and signature(violations[0]) == broken

    plan = shrunk(failure.plan, breaks)
    violations = simulate(failure.seed, plan).violations
    return Failure(failure.seed, violations or failure.violations, plan)


def prepare() -> None:
    """Loads all code, and takes what stays out of the collector's sight."""
    simulate(0, drawn(0))
    settle_memory()
    gc.freeze()
    collect_seldom()


def _all(seeds: Sequence[int], processes: int, one: Callable[[int], _Ran]) -> Iterable[_Ran]:
    prepare()
    if processes <= 1 or len(seeds) <= 1:
        return map(one, seeds)
    return _in_processes(seeds, processes, one)


def _in_processes(seeds: Sequence[int], processes: int, one: Callable[[int], _Ran]) -> Iterator[_Ran]:
    # Forked after the code was loaded: a process of its own would compile for seconds.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(processes, len(seeds)), mp_context=context) as pool:
        yield from pool.map(one, seeds, chunksize=1 + len(seeds) // (processes * 20))


def _one(seed: int, *, moves_pods: bool) -> _Ran:
    plan = drawn(seed, moves_pods=moves_pods)
    outcome = simulate(seed, plan)
    settle_memory()
    failure = Failure(seed, outcome.violations, plan) if outcome.violations else None
    return _Ran(failure, outcome.steps)
