"""The cluster's own time: it runs with the wall clock, faster or slower, or it jumps from one thing that is due to the next."""

from shared.kube.instants import SECOND


class Clock:
    """Simulated time. It never runs backwards and never behind what the log has seen.

    Attributes:
        speed: simulated seconds per second of wall time.
    """

    def __init__(self, *, wall_ns: int, seen_ns: int, speed: float) -> None:
        self.speed = speed
        self._wall_ns = wall_ns
        self._began_ns = max(wall_ns, seen_ns)

    def now_ns(self, wall_ns: int) -> int:
        """The simulated instant at an instant of the wall clock."""
        passed_ns = max(0, wall_ns - self._wall_ns)
        return self._began_ns + (passed_ns if self.speed == 1 else int(passed_ns * self.speed))

    def wait_s(self, until_ns: int, wall_ns: int) -> float:
        """Wall seconds until a simulated instant."""
        return max(0.0, (until_ns - self.now_ns(wall_ns)) / SECOND / self.speed)

    def jump(self, to_ns: int, wall_ns: int) -> None:
        """Let the simulated time be `to_ns` now; earlier than it is already changes nothing."""
        self._began_ns = max(to_ns, self.now_ns(wall_ns))
        self._wall_ns = wall_ns
