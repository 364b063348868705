"""Checks a configuration file as the service that reads it would: the same readers, without a system."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from shared.domain.all_faults import MOST, Fault
from shared.domain.config_map_text import config_map_text
from shared.errors import KoordError
from shared.yaml_fault import yaml_fault

FAULT, NOTE = "fault", "note"
CONFIG_MAP_VERSION = "v1"
NAMESPACE = "koordinator-system"
SCHEDULER, DESCHEDULER, SLO = "koord-scheduler-config", "koord-descheduler-config", "slo-controller-config"
KOORDLET = "koordlet-config"
"""The ConfigMap of agents' QoS plugins: a JSON object by plugin under the key `qos-plugin-extra-configs`.
Source: spec/api.md 4.2."""
KINDS = {"KubeSchedulerConfiguration": SCHEDULER, "DeschedulerConfiguration": DESCHEDULER}
"""Kind of a document -> the ConfigMap that holds it in a cluster."""


class BadConfigFile(KoordError):
    """A file that holds no configuration."""


class CheckedLine(msgspec.Struct, frozen=True):
    """A finding.

    Attributes:
        severity: `fault`: the file would be rejected. `note`: a part of it has no effect.
        what: the document, as `ConfigMap koord-descheduler-config`.
        line: in the file; 0 where only the path is known.
        path: place in the document; empty for all of it.
    """

    severity: str
    what: str
    line: int
    path: str
    reason: str


def check_file(path: Path) -> list[CheckedLine]:
    """Returns the findings about all documents of a file, in their order.

    Raises:
        BadConfigFile: it cannot be read, is no YAML, or has no configuration.
    """
    try:
        text = path.read_text()
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
        documents = list(yaml.safe_load_all(text))
    except OSError as error:
        raise BadConfigFile(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadConfigFile(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise BadConfigFile(f"{path}: not YAML: {yaml_fault(error)}") from error
    found: list[CheckedLine] = []
    known = 0
    for node, document in zip(nodes, documents, strict=True):
        if not isinstance(document, dict):
            continue
        kind = document.get("kind")
        if kind == "ConfigMap":
            checked = _config_map(node, document)
            known += checked is not None
            found += checked or []
        elif kind in KINDS:
            known += 1
            found += _document(str(kind), KINDS[str(kind)], yaml.safe_dump(document))
    if not known:
        kinds = ", ".join((*KINDS, "ConfigMap slo-controller-config"))
        raise BadConfigFile(f"{path} has no configuration that a service reads; there are {kinds}")
    return found


def _config_map(node: Any, document: Mapping[str, Any]) -> list[CheckedLine] | None:
    """Returns the findings about a ConfigMap; None for one that holds no configuration of ours.

    The outer object is checked apart from its content: a guide that no API server takes is checked all the same.
    """
    metadata = document.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    data, what = document.get("data") or {}, f"ConfigMap {name}"
    if not isinstance(data, dict):
        return [CheckedLine(FAULT, what, _line(node, "data"), "data", "no object; give key: text")]
    texts = {str(key): str(value) for key, value in data.items()}
    if name == KOORDLET:
        reason = (
            "only QoS plugins of other distributions read it (key qos-plugin-extra-configs): what agents do is in "
            "slo-controller-config"
        )
        return [CheckedLine(NOTE, what, 0, "", reason)]
    config = _config_in(name, texts)
    if not config:
        return None
    found = []
    if (version := document.get("apiVersion")) != CONFIG_MAP_VERSION:
        reason = f"{version!r} is not a ConfigMap's, so no API server takes it; write apiVersion: v1"
        found.append(CheckedLine(FAULT, what, _line(node, "apiVersion"), "apiVersion", reason))
    found += _unread(what, _line(node, "metadata"), metadata if isinstance(metadata, dict) else {}, config)
    if config == SLO:
        return [*found, *_slo(what, texts)]
    text, reason = config_map_text(config, texts)
    if text is None:
        return [*found, CheckedLine(FAULT, what, _line(node, "data"), "data", reason)]
    return [*found, *_document(what, config, text)]


def _unread(what: str, line: int, metadata: Mapping[str, Any], config: str) -> Iterator[CheckedLine]:
    """Yields what keeps services from a ConfigMap: they read one name in one namespace."""
    name, namespace = str(metadata.get("name") or ""), metadata.get("namespace")
    if name != config:
        reason = f"no service reads a ConfigMap of this name; name it {config}"
        yield CheckedLine(FAULT, what, line, "metadata.name", reason)
    if namespace is None:
        reason = f"there is none, and the one that is read is in {NAMESPACE}: apply it with `-n {NAMESPACE}`"
        yield CheckedLine(NOTE, what, line, "metadata.namespace", reason)
    elif namespace != NAMESPACE:
        reason = f"no service reads a ConfigMap in {namespace!r}; it belongs into {NAMESPACE}"
        yield CheckedLine(FAULT, what, line, "metadata.namespace", reason)


def _config_in(name: str, texts: Mapping[str, str]) -> str:
    """Returns the ConfigMap that should hold this data, by its keys, the kinds inside, or its name; empty where it is of
    no service.
    """
    from shared.admission.slo_config.document_validation import DOCUMENTS

    if name in (SLO, *KINDS.values()):
        return name
    for key, text in texts.items():
        try:
            kind = (yaml.safe_load(text) or {}).get("kind", "")
        except (yaml.YAMLError, AttributeError):
            kind = ""
        if config := KINDS.get(str(kind), "") or (key if key in KINDS.values() else ""):
            return config
    return SLO if any(key in DOCUMENTS for key in texts) else ""


def _document(what: str, config: str, text: str) -> list[CheckedLine]:
    faults_of, notes_of = _readers(config)
    if faults := faults_of(text):
        found = [CheckedLine(FAULT, what, 0, fault.path, fault.reason) for fault in faults]
        more = [CheckedLine(NOTE, what, 0, "", f"these are the first {MOST} faults; there may be more")]
        return [*found, *(more if len(faults) == MOST else ())]
    return [CheckedLine(NOTE, what, 0, "", note) for note in notes_of(text)]


def _readers(config: str) -> tuple[Callable[[str], list[Fault]], Callable[[str], tuple[str, ...]]]:
    """Returns what finds the faults of a configuration, and the parts without effect; imports one service alone."""
    if config == DESCHEDULER:
        from services.descheduler.configuration.read_configuration import faults_of, read_configuration

        return faults_of, lambda text: read_configuration(text).notes
    from services.scheduler.framework.config.checked_document import read_document
    from services.scheduler.framework.config.profiles import faults_of as scheduler_faults
    from services.scheduler.plugins.registry import REGISTRY

    return lambda text: scheduler_faults(text, REGISTRY), lambda text: read_document(text, REGISTRY).notes


def _slo(what: str, texts: Mapping[str, str]) -> list[CheckedLine]:
    from services.slo_controller.config.slo_configmap import read
    from services.slo_controller.config.unknown_fields import unknown_documents, unknown_in

    parsed = read(texts, {})
    return [
        *(CheckedLine(FAULT, what, 0, each.place, each.fault) for each in parsed.problems),
        *(CheckedLine(NOTE, what, 0, "", each) for each in (*unknown_documents(texts), *unknown_in(texts))),
    ]


def _line(node: Any, field: str) -> int:
    """Returns the line of a field of a document; 0 where it is absent."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((key.start_mark.line + 1 for key, _ in pairs if key.value == field), 0)
