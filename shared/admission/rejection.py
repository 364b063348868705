"""The rejection of an object by an admission rule."""

from collections.abc import Callable, Iterable, Sequence

from shared.errors import KoordError


class AdmissionRejected(KoordError):
    """An object violates a rule.

    Attributes:
        code: stable code of the rule: `exists`, `minSum`, ...
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


ALSO = "; also "
"""Between the faults of one object."""


def reject_together(subject: str, checks: Iterable[Callable[[], object]], beside: Sequence[str] = ()) -> None:
    """Runs all checks, so that the author of an object learns of all its faults at once.

    Args:
        subject: words with which each rejection begins; they are left out of all but the first.
        beside: faults that reject nothing, named with a rejection.

    Raises:
        AdmissionRejected: with the code of the first rejection, and the texts of all.
    """
    found = []
    for check in checks:
        try:
            check()
        except AdmissionRejected as error:
            found.append(error)
    if found:
        first, *others = found
        texts = (each.removeprefix(subject) for each in (*map(str, others), *beside))
        raise AdmissionRejected(first.code, ALSO.join((str(first), *texts)))
