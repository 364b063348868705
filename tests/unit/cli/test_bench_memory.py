"""`koord bench memory` counts what pods add to a State."""

import msgspec
from click.testing import CliRunner

from cli.bench import memory
from cli.bench.memory import MemoryFigures


def test_every_service_has_a_figure() -> None:
    result = CliRunner().invoke(memory.memory, ["--nodes", "5", "--pods", "200", "--json"], catch_exceptions=False)
    figures = msgspec.json.decode(result.output, type=MemoryFigures)
    per_pod = [value for name, value in msgspec.structs.asdict(figures).items() if name.endswith("bytes_per_pod")]
    assert len(per_pod) == len(memory.SERVICES)
    assert all(0 < value < 100_000 for value in per_pod), figures
