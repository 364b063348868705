"""Coverage-guided fuzzing of the decoders: `make fuzz`, or `python -m tests.property.fuzz_decoders --seconds 60 NAME`.

Each decoder gets a process of its own, because a fuzzer ends its process. A decoder fails when it raises another error
than the declared one, takes over `--slow` seconds for a message, or needs over 1 GiB. The message is then written to
`--folder`, and belongs into SHAPES of test_decoders.py.
"""

import argparse
import importlib
import pkgutil
import subprocess
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from random import Random

import atheris

from services.scheduler import kernels
from tests.property.mutations import mutated

# numba compiles no instrumented functions, so its modules are imported before.
for _module in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
    importlib.import_module(_module.name)
with redirect_stderr(StringIO()), atheris.instrument_imports(include=["services", "shared"]):
    from tests.property.decoders import DECODERS

LARGEST = 65_536


def fuzz(name: str, folder: Path, seconds: int, slow_s: int) -> None:
    """Fuzzes one decoder and ends the process."""
    decoder = DECODERS[name]
    corpus = folder / name.replace(" ", "-").replace("'", "")
    corpus.mkdir(parents=True, exist_ok=True)
    for number, message in enumerate(decoder.accepted):
        (corpus / f"accepted-{number}").write_bytes(message)

    def check(data: bytes) -> None:
        try:
            decoder.decode(data)
        except decoder.errors:
            return

    def change(data: bytes, size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(data, size))
        return mutated(random, [data or decoder.accepted[0]])[:size]

    limits = [f"-max_total_time={seconds}", f"-timeout={slow_s}", "-rss_limit_mb=1024", f"-max_len={LARGEST}"]
    found = f"-artifact_prefix={corpus}."
    atheris.Setup([sys.argv[0], *limits, found, "-verbosity=0", str(corpus)], check, custom_mutator=change)
    atheris.Fuzz()


def main() -> int:
    """Fuzzes all decoders, one after another. Returns 1 when one of them failed."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=int, default=30, help="for each decoder")
    arguments.add_argument("--slow", type=int, default=5, help="seconds that one message may take")
    arguments.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="for messages")
    arguments.add_argument("names", nargs="*", help="decoders; all by default")
    given = arguments.parse_args()
    if len(given.names) == 1:
        fuzz(given.names[0], given.folder, given.seconds, given.slow)
    options = ["--seconds", str(given.seconds), "--slow", str(given.slow), "--folder", str(given.folder)]
    failed = []
    for name in given.names or DECODERS:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.property.fuzz_decoders", *options, name],
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        print(f"{name}: {'failed' if ended.returncode else 'ok'}", flush=True)
        if ended.returncode:
            failed.append(name)
            print(ended.stdout[-2_000:], ended.stderr[-2_000:], flush=True)
    print(f"{len(failed)} of {len(given.names or DECODERS)} decoders failed{': ' if failed else ''}{', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
