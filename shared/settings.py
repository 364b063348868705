"""Settings from the environment: one frozen struct a service, validated, and printed as a table by `--help`."""

from collections.abc import Iterable, Mapping
from typing import Any, Self, get_args, get_origin

import msgspec

from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.type_error_words import in_plain_words


class BadSetting(KoordError):
    """An environment variable that does not fit its field."""

    def __init__(self, variable: str, found: str, reason: str) -> None:
        super().__init__(f"{variable} is {found!r}: {reason}")


class MissingSetting(KoordError):
    """An environment variable without which a service cannot start."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every service's settings: `KOORD_<SERVICE>_<FIELD>` in the environment."""

    @classmethod
    def load(cls, service: str, environment: Mapping[str, str]) -> Self:
        """Reads the fields that are set; the rest keep their defaults.

        Raises:
            BadSetting: a value does not parse or is out of bounds; names the variable.
            MissingSetting: one that has no default is not set.
        """
        found: dict[str, Any] = {}
        for field in msgspec.structs.fields(cls):
            variable = variable_of(service, field.name)
            text = environment.get(variable)
            if text is None:
                if field.required:
                    raise MissingSetting(f"{variable} is not set; {_description(field.type)}")
                continue
            try:
                found[field.name] = msgspec.convert(text, field.type, strict=False)
            except msgspec.ValidationError as error:
                raise BadSetting(variable, text, in_plain_words(str(error)).removesuffix(", got a string")) from error
        return msgspec.convert(found, cls, strict=False)


class SettingRow(msgspec.Struct, frozen=True):
    """One line of the settings table."""

    variable: str
    type: str
    default: str
    description: str


def variable_of(service: str, field: str) -> str:
    """Returns the environment variable of a field: `quota-ledger`, `revoke_after_s` ->
    `KOORD_QUOTA_LEDGER_REVOKE_AFTER_S`.

    An empty service stands for the settings that all services share: `KOORD_POSTGRES`.
    """
    return "_".join(filter(None, ("KOORD", service, field))).replace("-", "_").upper()


def unknown_variables(service: str, settings: Iterable[type[Settings]], environment: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each variable with the service's prefix that none of its settings reads: a typing error sets
    nothing.
    """
    known = {variable_of(service, field.name) for each in settings for field in msgspec.structs.fields(each)}
    prefix = variable_of(service, "") + "_"
    unknown = sorted(name for name in environment if name.startswith(prefix) and name not in known)
    return [f"{name} sets nothing{did_you_mean(name, known)}; see `koord run {service} --help`" for name in unknown]


_WORDS = {str: "text", int: "number", float: "number", bool: "true or false"}


def _default(value: object) -> str:
    """Returns a default as one writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == "" else str(value)


def table(service: str, settings: type[Settings]) -> list[SettingRow]:
    """Returns the rows that `koord run SERVICE --help` prints."""
    rows = []
    for field in msgspec.structs.fields(settings):
        kind, description = field.type, _description(field.type)
        if hasattr(kind, "__metadata__"):
            kind = get_args(kind)[0]
        name = str(kind) if get_origin(kind) else _WORDS.get(kind) or str(getattr(kind, "__name__", kind))
        default = "required" if field.required else f"default {_default(field.default)}"
        rows.append(SettingRow(variable_of(service, field.name), name, default, description))
    return rows


def _description(kind: Any) -> str:
    """Returns the description of an annotated type; empty without one."""
    return next((meta.description for meta in getattr(kind, "__metadata__", ()) if meta.description), "")
