"""Output of `koord dev simulate-faults`."""

from collections.abc import Sequence

import click
import msgspec

from cli.dev.fault_simulation import plan as plans
from cli.dev.fault_simulation.run_seeds import Failure, Result, run
from cli.dev.fault_simulation.run_world import simulate


def simulate_and_print(
    seeds: Sequence[int], processes: int, plan: bytes | None, *, moves_pods: bool, as_json: bool
) -> bool:
    """Runs the seeds, or a given plan with the first of them. Returns whether no invariant was broken."""
    result = run(seeds, processes, moves_pods=moves_pods) if plan is None else _of_plan(seeds[0], plans.decode(plan))
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
    else:
        click.echo(_text(result))
    return result.violations == 0


def _of_plan(seed: int, plan: plans.Plan) -> Result:
    outcome = simulate(seed, plan)
    failures = (Failure(seed, outcome.violations, plan),) if outcome.violations else ()
    return Result(1, len(failures), 0.0, outcome.steps, failures)


def _text(result: Result) -> str:
    lines = [f"{result.seeds} seeds, {result.violations} with a violation, {result.seeds_per_s:g} seeds/s"]
    for failure in result.failures:
        lines += ["", f"seed {failure.seed}:", *(f"  {text}" for text in failure.violations), "  after these steps:"]
        lines += [f"    {step}" for step in failure.plan]
        lines.append(f"  koord dev simulate-faults --seed {failure.seed} --plan FILE, with FILE:")
        lines.append(f"  {plans.encode(failure.plan)}")
    return "\n".join(lines)
