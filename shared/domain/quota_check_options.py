"""The part of the ledger's recorded settings by which others can predict whether a pod fits into its quota."""

import msgspec


class QuotaCheckOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of the comparison.

    Attributes:
        compare_runtime: compare with the runtime quota; else with max.
        check_parents: compare every ancestor, too.
    """

    compare_runtime: bool = True
    check_parents: bool = False


def options_of(text: str) -> QuotaCheckOptions:
    """Reads recorded settings; other fields are ignored."""
    return _DECODER.decode(text)


_DECODER = msgspec.json.Decoder(QuotaCheckOptions)
