"""Which configuration comes into force: taking over what is offered, on record."""

from hashlib import sha256
from typing import NamedTuple

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.framework.config.profiles import BadConfig, read_config
from services.scheduler.state.cluster_view import ClusterView
from shared.events import Draft
from shared.events.log import ConfigApplied, ConfigRejected


class OfferedConfig(NamedTuple):
    """A configuration that somebody offers; `source` is a file's path or a ConfigMap."""

    source: str
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text, hexadecimal: the name that decisions give it."""
        return sha256(self.text.encode()).hexdigest()


def config_drafts(view: ClusterView, file: OfferedConfig | None) -> tuple[Draft, ...]:
    """Take over what is offered, if it is new: the file, else the ConfigMap, else the shipped profile.

    Returns:
        ConfigApplied, or ConfigRejected (the last good one stays in force), or nothing.
    """
    offered = file
    if offered is None and view.config_map is not None:
        offered = OfferedConfig("ConfigMap koordinator-system/koord-scheduler-config", view.config_map)
    shipped = OfferedConfig("shipped profile", DEFAULT_PROFILE)
    offered = offered or shipped
    if offered.digest in (view.config_digest, view.refused_digest):
        return ()
    try:
        read_config(offered.text)
    except BadConfig as error:
        refused = ConfigRejected(source=offered.source, digest=offered.digest, path=error.path, reason=error.reason)
        first = () if view.config_digest else (_applied(shipped),)
        return (*first, Draft(refused))
    return (_applied(offered),)


def _applied(offered: OfferedConfig) -> Draft:
    return Draft(ConfigApplied(source=offered.source, digest=offered.digest, text=offered.text))
