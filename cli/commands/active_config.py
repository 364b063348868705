"""Which configuration is in force for a context, and which was refused, from the log alone."""

from collections.abc import Sequence

import msgspec

from shared.closest_name import did_you_mean
from shared.domain.config_rejection import fault_of
from shared.errors import KoordError
from shared.events import Event, RecordedEvent
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.kube.instants import SECOND, instant_text
from shared.log.admin.newest_events import newest, newest_of_keys, writer_of
from shared.log.database import Database
from shared.log.reader import LogReader

MOST_FAULTS = 20
"""Rejections that are read of a context."""


class Taken(msgspec.Struct, frozen=True):
    """A configuration that came into force at `seq`.

    Attributes:
        since_ns: when that was appended.
        lines: of its text.
        settings: the settings of the process that are recorded with it.
        without_effect: parts of it that have no effect in this release, such as plugins that are passed over.
        defaults: why the defaults are in force in the place of the source; empty where they are not.
        deleted_ns: when the source was deleted, which changes nothing; None for one that exists or never did.
    """

    source: str
    digest: str
    seq: int
    since_ns: int
    lines: int
    settings: dict[str, str] = {}
    without_effect: tuple[str, ...] = ()
    defaults: str = ""
    deleted_ns: int | None = None

    @property
    def name(self) -> str:
        """Names what is in force: the source, or the defaults in its place."""
        return f"defaults ({self.defaults})" if self.defaults else self.source

    @property
    def deletion(self) -> str:
        """Returns what the deletion of the source means; empty for one that was not deleted."""
        if self.deleted_ns is None or self.defaults:
            return ""
        at = instant_text(self.deleted_ns // SECOND * SECOND)
        return (
            f"{self.source} was deleted at {at}; as in Koordinator it stays in force until it is there again: "
            "apply it without data to return to the defaults"
        )


class Refused(msgspec.Struct, frozen=True):
    """The newest configuration that was not taken over.

    Attributes:
        faults: all that is wrong with it; path and reason are the last of them.
        stands: nothing was applied since, so the offered configuration is not in force; and it was not deleted since.
    """

    source: str
    digest: str
    seq: int
    at_ns: int
    path: str
    reason: str
    faults: tuple[str, ...]
    stands: bool


class ConfigStatus(msgspec.Struct, frozen=True):
    """One context; None where its writer never took over, or never refused, any."""

    context: str
    in_force: Taken | None
    refused: Refused | None


class NoConfiguration(KoordError):
    """A context's log holds no configuration."""


async def status_of(database: Database, contexts: Sequence[str] = ()) -> list[ConfigStatus]:
    """Of the given contexts, or of all that have any."""
    names = contexts or [
        context for context in await LogReader(database).contexts() if await takes_any(database, context)
    ]
    return [await _status(database, context) for context in names]


async def takes_any(database: Database, context: str) -> bool:
    """Reports whether the context's writer applies configurations, by the types it declared at its start."""
    writer = await writer_of(database, context)
    if writer is None:
        return False
    assert isinstance(writer.record.event, WriterStarted)
    return ConfigApplied.type_name() in writer.record.event.emits


async def text_of(database: Database, context: str) -> str:
    """The text in force.

    Raises:
        NoConfiguration: there is none.
    """
    known = await LogReader(database).contexts()
    if context not in known:
        meant = did_you_mean(context, known)
        raise NoConfiguration(f"there is no context {context!r}{meant}; there are {', '.join(known)}")
    found = await newest(database, context, [ConfigApplied]) if await takes_any(database, context) else []
    if not found:
        raise NoConfiguration(
            f"the writer of {context} has taken no configuration over; `koord get configs` shows which have"
        )
    assert isinstance(found[0].record.event, ConfigApplied)
    return found[0].record.event.text


async def _status(database: Database, context: str) -> ConfigStatus:
    taken, refused = None, None
    observed = await _observed_config_map(database) if context == "slo" else None
    for found in await newest(database, context, [ConfigApplied]):
        record, event = found.record, found.record.event
        assert isinstance(event, ConfigApplied)
        in_default = await _read_by_nobody(database, event.source) if context == "slo" and observed is None else ""
        taken = Taken(
            event.source,
            event.digest,
            record.seq,
            record.at_ns,
            len(event.text.splitlines()),
            event.settings,
            _without_effect(context, event, observed.event if observed else None),
            defaults=_why_defaults(event, observed, in_default) if context == "slo" else "",
            deleted_ns=observed.at_ns if observed and isinstance(observed.event, ObjectDeleted) else None,
        )
    rejected = [one.record for one in await newest(database, context, [ConfigRejected], MOST_FAULTS)]
    for record in rejected[:1]:
        event = record.event
        assert isinstance(event, ConfigRejected)
        stands = (taken is None or record.seq > taken.seq) and not _is_deleted_since(observed, record)
        faults = _faults_of(event.digest, rejected)
        refused = Refused(
            event.source, event.digest, record.seq, record.at_ns, event.path, event.reason, faults, stands
        )
    return ConfigStatus(context, taken, refused)


def _is_deleted_since(observed: RecordedEvent | None, rejection: RecordedEvent) -> bool:
    """Returns True where the ConfigMap that was rejected is gone: there is nothing to correct."""
    return observed is not None and isinstance(observed.event, ObjectDeleted) and observed.at_ns >= rejection.at_ns


def _faults_of(digest: str, rejected: Sequence[RecordedEvent]) -> tuple[str, ...]:
    """Returns the faults of one version, in the order of its text: each was recorded by an event of its own."""
    events = [record.event for record in reversed(rejected) if isinstance(record.event, ConfigRejected)]
    return tuple(dict.fromkeys(fault_of(event) for event in events if event.digest == digest))


async def _observed_config_map(database: Database) -> RecordedEvent | None:
    """Returns the newest observation of the SLO controller's ConfigMap, or its deletion."""
    from services.slo_controller.service_manifest import CONFIG_MAP

    for one in await newest(database, "cluster", [ObjectObserved, ObjectDeleted], key=CONFIG_MAP):
        event = one.record.event
        if isinstance(event, ObjectObserved | ObjectDeleted) and event.resource == "configmaps":
            return one.record
    return None


async def _read_by_nobody(database: Database, source: str) -> str:
    """Returns that a ConfigMap of the source's name is in the namespace of manifests that name none."""
    there = f"default/{source.partition('/')[2]}"
    for one in await newest_of_keys(database, "cluster", [ObjectObserved, ObjectDeleted], {there}):
        if isinstance(one.record.event, ObjectObserved) and one.record.event.resource == "configmaps":
            return f"; {there} is read by nobody"
    return ""


def _why_defaults(event: ConfigApplied, observed: RecordedEvent | None, in_default: str = "") -> str:
    """Returns why the SLO controller works with its defaults; empty where its ConfigMap has documents.

    Args:
        in_default: that another namespace has a ConfigMap of that name.
    """
    if msgspec.json.decode(event.text):
        return ""
    from shared.admission.slo_config.document_validation import DOCUMENTS

    if observed is None or not isinstance(observed.event, ObjectObserved):
        return f"no {event.source}{in_default}"
    there = [key for key in observed.event.object.get("data") or {} if key in DOCUMENTS]
    return f"{event.source} has {'no valid' if there else 'none of the'} documents"


def _without_effect(context: str, event: ConfigApplied, observed: Event | None) -> tuple[str, ...]:
    """Returns the parts of a configuration without effect; of the SLO controller's ConfigMap also keys that nothing reads,
    and fields of its rejected documents, which are not part of what was applied.
    """
    if context == "scheduling":
        return _parts_of_profiles(event.text)
    if context != "slo":
        return ()
    from services.slo_controller.config.unknown_fields import unknown_documents, unknown_in, unknown_parts

    texts = (observed.object.get("data") or {}) if isinstance(observed, ObjectObserved) else {}
    # A rejected document is not part of what was applied, and its typing errors are to be seen with the fault.
    parts = (*unknown_parts(event.text), *unknown_in(texts))
    return (*unknown_documents(texts), *dict.fromkeys(parts))


def _parts_of_profiles(text: str) -> tuple[str, ...]:
    """Returns the parts of a scheduler's configuration without effect; none where this release cannot read it."""
    from services.scheduler.framework.config.checked_document import read_document
    from services.scheduler.plugins.registry import REGISTRY
    from shared.domain.component_config import BadConfig

    try:
        return read_document(text, REGISTRY).notes
    except BadConfig:
        return ()
