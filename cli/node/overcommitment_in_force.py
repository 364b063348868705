"""Why a node has no batch or mid resources although nothing went wrong: whether over-commitment is on for it."""

import msgspec

from cli.commands.active_config import NoConfiguration, text_of
from services.slo_controller.config.colocation_strategy import effective_strategy, is_overcommitted
from services.slo_controller.config.slo_configmap import config_of
from shared.kube.meta import Metadata
from shared.log.database import Database

CONFIG_MAP = "ConfigMap koordinator-system/slo-controller-config"


async def overcommitment_of(database: Database, node: Metadata) -> str:
    """Returns a sentence: whether over-commitment is on for a node by the configuration in force, and what is missing."""
    try:
        text = await text_of(database, "slo")
    except NoConfiguration:
        return "the SLO controller has not run yet"
    colocation = config_of(msgspec.json.decode(text, type=dict[str, str])).colocation
    if is_overcommitted(colocation, effective_strategy(colocation, node)):
        return "over-commitment is on for it; the amounts follow its first usage report"
    if colocation.enable is True:
        return f"colocation-config of {CONFIG_MAP} enables over-commitment, and a strategy for nodes like this switches it off"
    return f'over-commitment is off: write colocation-config {{"enable": true}} into {CONFIG_MAP}'
