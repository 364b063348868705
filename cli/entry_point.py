"""Entry point of the `koord` script: Ctrl-C while modules are imported ends it without a traceback."""

import sys
from types import TracebackType


def _print_unless_interrupted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints the traceback of an error. Python ends an interrupted program by SIGINT, which a shell shows as 130."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


# Before any other import: the first tenth of a second is spent on them.
sys.excepthook = _print_unless_interrupted


def main() -> None:
    """Runs `koord`."""
    from cli.main import main as run

    run()
