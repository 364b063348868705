"""Which recorded cases the repository keeps, and the files that `koord parity` reads."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from cli.parity.run_cases import case_file, read_cases, tally_folder
from shared.errors import KoordError
from tools.parity_sample import SHARES, Lines, drawn, lines_of, main, packed, sample

NAMES = [f"loadaware-{number}" for number in range(1_000)]


def line(name: str, cpu: int = 2000) -> bytes:
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": f"{cpu}m"}}}
    output = {"allocatable": {"cpu": cpu, "memory": 0}}
    case = {"case": name, "op": "estimate_node", "input": {"args": {}, "node": node}, "output": output}
    return json.dumps(case).encode() + b"\n"


def names(lines: Lines) -> list[str]:
    return [json.loads(each)["case"] for each in lines["loadaware"]]


LINES: Lines = {"loadaware": [line(name) for name in NAMES]}


def test_a_case_is_drawn_by_its_name_alone() -> None:
    other: Lines = {"loadaware": [line(name, cpu=1) for name in NAMES]}
    assert names(drawn(other, 0.25)) == names(drawn(LINES, 0.25))
    assert 200 < len(names(drawn(LINES, 0.25))) < 300


def test_a_smaller_share_is_part_of_a_larger_one_in_the_order_of_the_recording() -> None:
    before = NAMES
    for share in SHARES:
        kept = names(drawn(LINES, share))
        assert kept == [name for name in before if name in kept]
        before = kept
    assert names(drawn(LINES, 1)) == NAMES


def test_the_largest_share_that_fits_is_taken() -> None:
    sizes = [sum(map(len, packed(drawn(LINES, share)).values())) for share in SHARES]
    assert sample(LINES, sizes[2]) == packed(drawn(LINES, SHARES[2]))
    assert sample(LINES, sizes[2] - 1) == packed(drawn(LINES, SHARES[3]))
    with pytest.raises(SystemExit):
        sample(LINES, 1)


def test_a_new_draw_replaces_the_old_one_and_leaves_what_is_written_about_it(tmp_path: Path) -> None:
    vectors, cases = tmp_path / "vectors", tmp_path / "cases"
    for folder in (vectors, vectors / "found", cases):
        folder.mkdir()
    (vectors / "loadaware.jsonl").write_bytes(b"".join(LINES["loadaware"]))
    (vectors / "found/loadaware.jsonl").write_bytes(line("once"))
    (cases / "README.md").write_text("how")
    (cases / "cpuset.jsonl.zst").write_bytes(b"")
    main(vectors, cases)
    assert sorted(path.name for path in cases.iterdir()) == ["README.md", "found", "loadaware.jsonl.zst"]
    assert lines_of(cases) == LINES
    assert [each.case for each in read_cases(cases / "found/loadaware.jsonl.zst")] == ["once"]


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_cases_are_read_plain_and_compressed(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"loadaware.jsonl{suffix}").write_bytes(PACK[suffix](b"".join(LINES["loadaware"])))
    tally = tally_folder(tmp_path)["loadaware"]
    assert (tally.cases, tally.equal) == (1_000, 1_000)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_file_that_is_cut_short_or_not_compressed_is_an_error_that_names_it(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"loadaware.jsonl{suffix}"
    path.write_bytes(b"not compressed")
    with pytest.raises(KoordError, match=path.name):
        list(read_cases(path))
    path.write_bytes(PACK[suffix](line("cut"))[:-9])
    with pytest.raises(KoordError, match=path.name):
        list(read_cases(path))


def test_a_plain_file_goes_before_a_compressed_one(tmp_path: Path) -> None:
    assert case_file(tmp_path, "cpuset") is None
    for suffix in (".gz", ".zst", ""):
        (tmp_path / f"cpuset.jsonl{suffix}").touch()
        assert case_file(tmp_path, "cpuset") == tmp_path / f"cpuset.jsonl{suffix}"
