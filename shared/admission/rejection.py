"""The rejection of an object by an admission rule."""

from shared.errors import KoordError


class AdmissionRejected(KoordError):
    """An object violates a rule.

    Attributes:
        code: stable code of the rule: `exists`, `minSum`, ...
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
