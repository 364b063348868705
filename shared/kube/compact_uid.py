"""Uids of objects as integers, for tables of many objects: a UUID takes half of the memory of its text."""

Uid = int | str
"""A UUID in its canonical text form as an integer; any other uid as it is."""


def compact_uid(text: str) -> Uid:
    """Returns the compact form of a uid. Different texts have different compact forms."""
    if len(text) != 36:
        return text
    try:
        number = int(text.replace("-", ""), 16)
    except ValueError:
        return text
    # Upper case, digits beyond ASCII and misplaced dashes do not survive the conversion, so such a text stays a text.
    return number if uid_text(number) == text else text


def uid_text(uid: Uid) -> str:
    """Returns the text of a uid."""
    if isinstance(uid, str):
        return uid
    digits = f"{uid:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
