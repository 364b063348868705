"""One step of a plan, and the time in which steps begin."""

import random

import msgspec

FAULTS_LAST_S = 15.0
"""By then the faults have ended, but for agents that stay silent."""

FAULTS_END_S = 10.0
"""After this no new fault begins; each one that is in force ends within the time that it names."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step.

    Attributes:
        at_s: seconds after the world's begin.
        do: a name of `faults.STEPS`.
        target: the service, pod or quota that is meant.
        what: the kind of pod, message fault or API fault.
        number: cores, or callbacks that run before a crash.
        for_s: how long a fault is in force.
        rate: the probability of a fault that is drawn for each message or request.
    """

    at_s: float
    do: str
    target: str = ""
    what: str = ""
    number: int = 0
    for_s: float = 0.0
    rate: float = 0.0

    def __str__(self) -> str:
        parts = [self.target, self.what, str(self.number or ""), f"for {self.for_s:g} s" if self.for_s else ""]
        rate = f"rate {self.rate:g}" if self.rate else ""
        return f"{self.at_s:7.3f} s  {self.do} {' '.join(filter(None, [*parts, rate]))}"


def fault_time(draw: random.Random) -> tuple[float, float]:
    """Draws when a fault begins, and how long it is in force; most are short."""
    at_s = instant(draw, 0.2)
    return at_s, round(0.2 + draw.random() ** 3 * (FAULTS_LAST_S - at_s), 3)


def faults_of(draw: random.Random, service: str, at_s: float, for_s: float) -> tuple[Step, ...]:
    """Draws one fault of each kind that a service of some worlds alone may have; a crash is twice as likely."""
    return (
        Step(at_s, "crash", service, number=draw.randint(0, 60)),
        Step(at_s, "crash", service, number=draw.randint(0, 60)),
        Step(at_s, "stop", service, for_s=for_s),
        Step(at_s, "jump-clock", service, number=draw.randint(-600, 600), for_s=for_s),
        Step(at_s, "cut-log", service, for_s=for_s),
        Step(at_s, "cut-bus", service, draw.choice(("both", "deaf", "mute")), for_s=for_s),
    )


def instant(draw: random.Random, begins_s: float = 0.0) -> float:
    """Draws the time of a step."""
    return round(begins_s + draw.random() * (FAULTS_END_S - begins_s), 3)
