"""Draws the recorded cases that are kept in the repository: tests/parity/cases.

python -m tools.parity_sample [VECTORS]    draws from VECTORS (../shared/vectors), and writes

A case is drawn by a digest of its name alone, so neither its input nor our output decides, and the share of cases that
rules argue for stays that of the whole. Of all domains the same share is drawn: the largest that fits into LIMIT when
compressed. Cases of VECTORS/found are kept whole, in a folder of their own, because their shares are those of no random
set.
"""

import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec
import zstandard

from cli.parity.case_domain import DOMAINS
from cli.parity.run_cases import Case, case_file, opened

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests/parity/cases"
LIMIT = 4 << 20
"""Bytes of all files together."""
SHARES = tuple(1 / (1 << halvings) for halvings in range(8))
LEVEL = 19

Lines = dict[str, list[bytes]]
"""Domain -> lines of its file, in the order of the recording."""


def lines_of(folder: Path) -> Lines:
    """Returns all cases that a folder has of each domain.

    Raises:
        KoordError: a file cannot be read.
    """
    found = {}
    for name in DOMAINS:
        if path := case_file(folder, name):
            with opened(path) as lines:
                found[name] = [line.rstrip(b"\n") + b"\n" for line in lines if line.strip()]
    return found


def drawn(lines: Lines, share: float) -> Lines:
    """Returns the cases whose name's digest, as a fraction of the largest one, lies below the share; 1 draws all."""
    return {name: [line for line in each if _fraction(line) < share] for name, each in lines.items()}


def packed(lines: Lines) -> dict[str, bytes]:
    """Returns the compressed files: `DOMAIN.jsonl.zst` -> content.

    The same lines give the same bytes with one version of zstandard.
    """
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    return {f"{name}.jsonl.zst": compressor.compress(b"".join(each)) for name, each in lines.items() if each}


def sample(lines: Lines, limit: int) -> dict[str, bytes]:
    """Returns the files of the largest share that fits.

    Raises:
        SystemExit: not even the smallest share fits.
    """
    for share in SHARES:
        files = packed(drawn(lines, share))
        if sum(map(len, files.values())) <= limit:
            return files
    raise SystemExit(f"{SHARES[-1]:.1%} of the cases take more than {limit} bytes; raise LIMIT or record fewer cases")


def write(files: dict[str, bytes], folder: Path) -> None:
    """Replaces the cases of a folder; its README stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in _kept(folder):
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def main(vectors: Path, cases: Path = CASES) -> None:
    """Draws, writes, and prints the sizes."""
    found = packed(lines_of(vectors / "found"))
    files = sample(lines_of(vectors), LIMIT - sum(map(len, found.values())))
    write(files, cases)
    write(found, cases / "found")
    size = sum(path.stat().st_size for folder in (cases, cases / "found") for path in _kept(folder))
    sys.stdout.write(f"{cases}: {len(files)} domains and {len(found)} of found cases, {size:,} bytes\n")


def _fraction(line: bytes) -> float:
    name = msgspec.json.decode(line, type=Case).case
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest()) / (1 << 32)


def _kept(folder: Path) -> Iterator[Path]:
    return folder.glob("*.jsonl.*")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT.parent / "shared/vectors")
