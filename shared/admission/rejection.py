"""What a rule says of an object that it does not let through."""

from shared.errors import KoordError


class Refused(KoordError):
    """An object breaks a rule.

    Attributes:
        code: which rule, stable: `exists`, `minSum`, ...
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
