"""`koord parity DIR`: the numbers for people, or one JSON object for programs."""

from collections.abc import Mapping
from pathlib import Path

import click

from cli.parity.run_cases import Tally, tally_folder
from cli.terminal.output import show, show_table


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object: domain -> counts and the first difference."
)
@click.pass_context
def parity(ctx: click.Context, folder: Path, *, as_json: bool) -> None:
    """Compare our decisions with upstream's, case by case.

    DIR holds files DOMAIN.jsonl (or .jsonl.zst, .jsonl.gz) of recorded inputs and upstream's outputs, such as
    tests/parity/cases of a clone; every one that is known is run. A difference that docs/compat.md argues for counts as
    argued, or as a crash where upstream crashes. Exits with 1 when any other is found.
    """
    tallies = tally_folder(folder)
    if as_json:
        show(tallies, "json")
    else:
        columns = ("domain", "cases", "equal", "argued", "crashes", "different")
        rows = ((name, t.cases, t.equal, t.argued, t.crashes, t.different) for name, t in tallies.items())
        show_table(columns, rows)
        for line in _complaints(tallies):
            click.echo(line)
    if not all(tally.holds for tally in tallies.values()):
        ctx.exit(1)


def _complaints(tallies: Mapping[str, Tally]) -> list[str]:
    lines = []
    for name, tally in tallies.items():
        if first := tally.first_different:
            at = f" at {first.path}" if first.path else ""
            lines.append(
                f"{name}: {first.case} ({first.op}) differs{at}: expected {first.expected!r}, found {first.found!r}"
            )
        if tally.argues_too_much:
            share = f"{tally.argued_share:.0%}"
            lines.append(f"{name}: rules explain {tally.argued} of {tally.cases} cases; at most {share} may be argued")
    return lines
