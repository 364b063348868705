"""Named places where a crash test may end the process, as `kill -9` would: between a response, a commit, an
announcement.

`KOORD_FAILPOINT=gateway.after-commit` ends the process the first time it gets there, `gateway.after-commit:7` the
seventh time. Without the variable a place costs one comparison.
"""

import os

CODE = 137
"""The exit status of a process killed by signal 9, as a shell shows it."""

_name = ""
_left = 1


def arm(text: str) -> None:
    """Takes over a value of KOORD_FAILPOINT; the empty one disarms."""
    global _name, _left  # noqa: PLW0603  a process has one failpoint
    _name, _, count = text.partition(":")
    _left = int(count or "1")


def hit(name: str) -> None:
    """Ends the process at once, without cleaning up, if the environment names this place and its count is reached."""
    global _left  # noqa: PLW0603  a process has one failpoint
    if name != _name:
        return
    _left -= 1
    if _left <= 0:
        os._exit(CODE)


arm(os.environ.get("KOORD_FAILPOINT", ""))
