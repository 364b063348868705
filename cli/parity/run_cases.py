"""Runs a domain's cases and counts how many of our answers are upstream's."""

import gzip
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from cli.parity.case_domain import DOMAINS, Domain, load
from cli.parity.compare import Difference, difference
from shared.errors import KoordError

SUFFIXES = ("", ".zst", ".gz")
"""Of `DOMAIN.jsonl`: as it is, or compressed."""

FEWEST = 50
"""Of fewer cases no share is computed: a folder of a few, collected because they differ, says nothing of how often
cases do.
"""

CRASH = {"panic": True}
"""The recorded output of an input on which upstream crashes."""


class Case(msgspec.Struct, frozen=True):
    """One line of a domain's file: an input, and upstream's output for it."""

    case: str
    op: str
    input: dict[str, Any]
    output: Any


class Different(msgspec.Struct, frozen=True):
    """A case that differs, and where it first does."""

    case: str
    op: str
    path: str
    expected: Any
    found: Any


class Tally(msgspec.Struct):
    """The counts of a domain: each case is equal, argued, a crash of upstream, or different.

    Attributes:
        argued: cases that a rule explains: it predicted upstream's answer, and docs/compat.md gives the reason for
            ours.
        crashes: cases that a rule explains and that crash upstream.
        argued_share: the largest share of the cases that may be argued.
    """

    cases: int = 0
    equal: int = 0
    argued: int = 0
    crashes: int = 0
    different: int = 0
    argued_share: float = 0.02
    first_different: Different | None = None

    @property
    def argues_too_much(self) -> bool:
        """Reports whether rules explain more than their share of at least FEWEST cases: that would be another system."""
        return self.cases >= FEWEST and self.argued > self.argued_share * self.cases

    @property
    def holds(self) -> bool:
        """Reports whether nothing differs without a reason, and not too much with one."""
        return not self.different and not self.argues_too_much


def tally_folder(folder: Path) -> dict[str, Tally]:
    """Runs every domain that the folder has a file of.

    Raises:
        KoordError: there is no file of a known domain, or one cannot be read.
    """
    found = {name: path for name in DOMAINS if (path := case_file(folder, name))}
    if not found:
        files = ", ".join(f"{name}.jsonl" for name in DOMAINS)
        raise KoordError(f"{folder} holds no cases; expected one of {files}, also with .zst or .gz")
    return {name: tally_file(path, load(name)) for name, path in found.items()}


def case_file(folder: Path, name: str) -> Path | None:
    """Returns the file of a domain's cases in a folder; None without one."""
    paths = (folder / f"{name}.jsonl{suffix}" for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


@contextmanager
def opened(path: Path) -> Iterator[Iterable[bytes]]:
    """Opens a file of cases: its lines, decompressed by its suffix.

    Raises:
        KoordError: the file cannot be read, or is not compressed as its suffix states.
    """
    try:
        match path.suffix:
            case ".zst":
                yield io.BytesIO(_decompressed(path))
            case ".gz":
                with gzip.open(path, "rb") as stream:
                    yield stream
            case _:
                with path.open("rb") as file:
                    yield file
    except (OSError, EOFError, zstandard.ZstdError) as error:
        raise KoordError(f"{path} cannot be read: {error}") from error


def tally_file(path: Path, domain: Domain) -> Tally:
    """Runs one domain's cases.

    Raises:
        KoordError: a line is no case.
    """
    tally = Tally(argued_share=domain.argued_share)
    for case in read_cases(path):
        tally.cases += 1
        found = _answer(domain, case)
        at = difference(without(case.output, domain.remarks), found)
        if at is None:
            tally.equal += 1
        elif is_argued(domain, case):
            if case.output == CRASH:
                tally.crashes += 1
            else:
                tally.argued += 1
        else:
            tally.different += 1
            if tally.first_different is None:
                tally.first_different = Different(case.case, case.op, *at)
    return tally


def _decompressed(path: Path) -> bytes:
    whole = zstandard.ZstdDecompressor().decompressobj()
    data = whole.decompress(path.read_bytes())
    if not whole.eof:
        # A stream that ends early is no error to zstandard, and fewer cases would pass.
        raise EOFError("the file ends before its last block")
    return data


def read_cases(path: Path) -> Iterator[Case]:
    """Yields the cases of a file, line by line.

    Raises:
        KoordError: the file cannot be read, or a line is no case.
    """
    decoder = msgspec.json.Decoder(Case)
    with opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise KoordError(f"{path}:{number} is no case: {error}") from error


def is_argued(domain: Domain, case: Case) -> bool:
    """Reports whether a rule recognises the input and predicts upstream's output for it."""
    recorded = without(case.output, domain.remarks)
    return any(
        rule.recognises(case.op, case.input) and difference(recorded, rule.upstream(case.op, case.input)) is None
        for rule in domain.rules
    )


def first_difference(domain: Domain, case: Case) -> Difference | None:
    """Returns the first difference between our output for one case and the recorded one, if there is one."""
    return difference(without(case.output, domain.remarks), _answer(domain, case))


def without(output: Any, remarks: frozenset[str]) -> Any:
    """Returns a recorded output without the recorder's remarks, at any depth, and without objects that consist of
    them.
    """
    if not remarks:
        return output
    if isinstance(output, dict):
        kept = ((name, part, without(part, remarks)) for name, part in output.items() if name not in remarks)
        return {name: after for name, part, after in kept if after or not isinstance(part, dict) or not part}
    return [without(part, remarks) for part in output] if isinstance(output, list) else output


def _answer(domain: Domain, case: Case) -> Any:
    try:
        return domain.answer(case.op, case.input)
    except Exception as error:  # noqa: BLE001  one case that our code cannot take hides none of the others
        return {"error": f"{type(error).__name__}: {error}"}
