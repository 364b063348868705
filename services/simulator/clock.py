"""Simulated time: it runs with the wall clock, faster or slower, or it jumps from one timer to the next."""

from shared.kube.instants import SECOND


class Clock:
    """Simulated time. It never runs backwards, and never behind the instants in the log.

    Attributes:
        speed: simulated seconds per second of wall time.
    """

    def __init__(self, *, wall_ns: int, seen_ns: int, speed: float) -> None:
        self.speed = speed
        self._wall_ns = wall_ns
        self._began_ns = max(wall_ns, seen_ns)

    def now_ns(self, wall_ns: int) -> int:
        """Returns the simulated instant at an instant of the wall clock."""
        passed_ns = max(0, wall_ns - self._wall_ns)
        return self._began_ns + (passed_ns if self.speed == 1 else int(passed_ns * self.speed))

    def wait_s(self, until_ns: int, wall_ns: int) -> float:
        """Returns the wall seconds until a simulated instant."""
        return max(0.0, (until_ns - self.now_ns(wall_ns)) / SECOND / self.speed)

    def jump(self, to_ns: int, wall_ns: int) -> None:
        """Sets the simulated time to `to_ns`; an earlier instant changes nothing."""
        self._began_ns = max(to_ns, self.now_ns(wall_ns))
        self._wall_ns = wall_ns
