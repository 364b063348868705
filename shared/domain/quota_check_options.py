"""What a pod's request is compared with, as the ledger's log says it: part of its configuration, by which others can foresee an answer."""

import msgspec


class QuotaCheckOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """How room is found.

    Attributes:
        compare_runtime: pods are held to the runtime quota; else to max.
        check_parents: every ancestor must have room too.
    """

    compare_runtime: bool = True
    check_parents: bool = False


def options_of(text: str) -> QuotaCheckOptions:
    """Read the configuration that the ledger has recorded; fields of no interest here pass."""
    return _DECODER.decode(text)


_DECODER = msgspec.json.Decoder(QuotaCheckOptions)
