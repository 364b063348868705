"""koord log export: the files have the events of the log, and a second run continues after the first."""

import gzip
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import zstandard
from pyarrow import parquet

from cli.export import export_run
from tests.integration.cli.recorded_log import Log, append, placed, run


@pytest.fixture
async def log(database: str, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(export_run, "PART", 40)
    await append(database, "scheduling", [placed(f"web-{number}", "n1") for number in range(99)])
    return Log(database)


def lines(folder: Path) -> list[dict[str, Any]]:
    """Returns the events of all JSON lines files, by seq."""
    found = []
    for file in sorted(folder.glob("scheduling-*.jsonl*")):
        data = file.read_bytes()
        if file.suffix == ".zst":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        elif file.suffix == ".gz":
            data = gzip.decompress(data)
        found += [json.loads(line) for line in data.splitlines()]
    return found


@pytest.mark.parametrize("compress", ["zstd", "gzip", "none"])
async def test_json_lines_hold_every_event_as_a_cloud_event(log: Log, tmp_path: Path, compress: str) -> None:
    out = tmp_path / "out"
    found = await run(log, "log", "export", "scheduling", "--compress", compress, "-o", str(out))
    assert found.exit_code == 0, found.output
    events = lines(out)
    assert [event["id"] for event in events] == [f"scheduling/{seq}" for seq in range(1, 101)]
    assert events[50]["data"]["pod"] == "default/web-49"
    manifest = json.loads((out / "scheduling.manifest.json").read_text())
    assert [(part["first"], part["last"], part["rows"]) for part in manifest["parts"]] == [
        (1, 40, 40),
        (41, 80, 40),
        (81, 100, 20),
    ]
    assert manifest["parts"][-1]["digest"] == events[-1]["digest"]


@pytest.mark.parametrize("compress", ["zstd", "gzip", "none"])
async def test_parquet_holds_every_row_with_its_exact_data(log: Log, tmp_path: Path, compress: str) -> None:
    out = tmp_path / "out"
    found = await run(log, "log", "export", "scheduling", "--format", "parquet", "--compress", compress, "-o", str(out))
    assert found.exit_code == 0, found.output
    rows = [row for file in sorted(out.glob("*.parquet")) for row in parquet.read_table(file).to_pylist()]
    connection = await asyncpg.connect(log.url)
    expected = [dict(row) for row in await connection.fetch("select * from events_scheduling order by seq")]
    await connection.close()
    assert rows == [{**row, "data": row["data"].decode()} for row in expected]


async def test_a_second_run_adds_new_events_and_checks_existing_files(log: Log, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("log", "export", "--all", "-o", str(out))
    assert (await run(log, *command)).exit_code == 0
    again = await run(log, *command)
    rows = [" ".join(line.split()) for line in again.stdout.splitlines()]
    assert any(row.startswith("scheduling 100 1 100 0 3") for row in rows), again.stdout
    await append(log.url, "scheduling", [placed("late", "n2")])
    assert (await run(log, *command)).exit_code == 0
    assert [event["id"] for event in lines(out)] == [f"scheduling/{seq}" for seq in range(1, 103)]
    part = next(out.glob("scheduling-*041-*"))
    part.write_bytes(part.read_bytes()[:-1])
    broken = await run(log, *command)
    assert broken.exit_code == 1
    assert f"{part.name} is not what" in broken.output


async def test_a_row_that_was_altered_stops_the_export_and_is_named(log: Log, tmp_path: Path) -> None:
    connection = await asyncpg.connect(log.url)
    await connection.execute("update events_scheduling set actor = 'x' where seq = 70")
    found = await run(log, "log", "export", "scheduling", "-o", str(tmp_path))
    assert found.exit_code == 1
    assert "scheduling/70 koord.scheduling.PodPlaced.v1 default/web-68" in found.output
    assert [part["last"] for part in json.loads((tmp_path / "scheduling.manifest.json").read_text())["parts"]] == [40]
    await connection.execute("delete from events_scheduling where seq > 39")
    await connection.close()
    assert "it was cut short" in (await run(log, "log", "export", "scheduling", "-o", str(tmp_path))).output


async def test_a_range_is_by_seq_or_by_time(log: Log, tmp_path: Path) -> None:
    chosen = ("--from", "30", "--to", "50")
    assert (await run(log, "log", "export", "scheduling", *chosen, "-o", str(tmp_path / "seq"))).exit_code == 0
    assert [event["seq"] for event in lines(tmp_path / "seq")] == [str(seq) for seq in range(30, 51)]
    await append(log.url, "scheduling", [placed("late", "n2")], 1_900_000_000_000_000_000)
    for name, bound in (("late", ("--from", "2030-01-01T00:00:00Z")), ("early", ("--to", "2030-01-01T00:00:00Z"))):
        assert (await run(log, "log", "export", "scheduling", *bound, "-o", str(tmp_path / name))).exit_code == 0
    assert [event["seq"] for event in lines(tmp_path / "late")] == ["101", "102"]
    assert len(lines(tmp_path / "early")) == 100
    left = await run(log, "log", "export", "scheduling", "--from", "90", "-o", str(tmp_path / "seq"))
    assert "would leave a hole" in left.output


async def test_a_folder_holds_one_kind_of_export(log: Log, tmp_path: Path) -> None:
    assert (await run(log, "log", "export", "scheduling", "-o", str(tmp_path))).exit_code == 0
    other = await run(log, "log", "export", "scheduling", "--compress", "gzip", "-o", str(tmp_path))
    assert "holds jsonl with compression zstd" in other.output
    assert (await run(log, "log", "export", "-o", str(tmp_path))).exit_code == 2
    assert "there is no log" in (await run(log, "log", "export", "nothing", "-o", str(tmp_path))).output
