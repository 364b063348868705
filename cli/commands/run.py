"""`koord run`: one service as this process."""

import sys

import click

from cli.services import SERVICES, load


class RunService(click.Command):
    """`koord run SERVICE --help` prints the service's settings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Answer `SERVICE --help` before click answers `--help`."""
        wanted = [arg for arg in args if arg in SERVICES]
        if wanted and any(arg in {"--help", "-h"} for arg in args):
            click.echo(_settings_table(wanted[0]))
            ctx.exit()
        return super().parse_args(ctx, args)


@click.command(cls=RunService, epilog="`koord run SERVICE --help` prints the service's settings.")
@click.argument("service", type=click.Choice(SERVICES))
def run(service: str) -> None:
    """Run one service until SIGTERM.

    It needs KOORD_POSTGRES and KOORD_NATS; with KOORD_HTTP=host:port it serves /healthz, /readyz, /metrics and /statusz.
    Logs are JSON on stderr. It ends with 0 after SIGTERM; any other end is an error, and whoever started it starts it again.
    """
    from shared.service import run as run_service

    sys.exit(run_service(load(service)))


def _settings_table(name: str) -> str:
    from shared.service import Environment
    from shared.settings import table

    service = load(name)
    follows = ", ".join(sorted(service.follows))
    rows = [*table("", Environment), *table(service.name, service.settings)]
    lines = [
        f"{name}: writes the context {service.writes}, follows {follows}.",
        "",
        "Settings, from the environment:",
        "",
    ]
    for row in rows:
        variable = row.variable.replace("KOORD__", "KOORD_", 1)
        lines.append(f"  {variable} ({row.type}, {row.default})")
        if row.description:
            lines.append(f"      {row.description}")
    return "\n".join(lines)
