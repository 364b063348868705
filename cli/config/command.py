"""The `koord config` commands."""

from pathlib import Path

import click

from cli.config.check_file import FAULT, CheckedLine, check_file
from cli.terminal.lazy_group import Group
from cli.terminal.options import output_option
from cli.terminal.output import Format, show, show_text


@click.group(cls=Group)
def config() -> None:
    """Check configuration files before they are applied."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@output_option
@click.pass_context
def check(ctx: click.Context, *, file: Path, output: Format) -> None:
    """Check a configuration as the service that reads it would.

    FILE holds a KubeSchedulerConfiguration, a DeschedulerConfiguration, or a ConfigMap with one of them or with the
    documents of slo-controller-config. Exits with 1 when it would be rejected.
    """
    found = check_file(file)
    if output == "table":
        for each in found:
            show_text(_text(file, each))
        if not any(each.severity == FAULT for each in found):
            show_text(f"{file}: accepted")
    else:
        show(found, output)
    if any(each.severity == FAULT for each in found):
        ctx.exit(1)


def _text(file: Path, found: CheckedLine) -> str:
    line = f":{found.line}" if found.line else ""
    place = f"{found.path}: " if found.path and found.path not in found.reason else ""
    return f"{file}{line}: {found.severity}: {found.what}: {place}{found.reason}"
