"""Labels and annotations of a pod that have no effect: they cannot be read, so that what upstream defaults to counts,
or their name, or that of a field, is misspelt.

A misspelt QoS class lets a pod share CPUs that it should have for itself, so the fault has to be seen.
"""

from collections.abc import Iterator, Mapping

from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.strict_annotation_parsing import read_counts, read_whole
from shared.domain.misspelt_settings import misspelt_settings
from shared.domain.pod_annotations import fields_without_effect
from shared.domain.priority import LABEL as PRIORITY_CLASS
from shared.domain.priority import SUB_PRIORITY, Priority, is_sub_priority
from shared.domain.qos import LABEL as QOS_CLASS
from shared.domain.qos import QoS

ESTIMATED_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
ESTIMATED_AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
ESTIMATED_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"

_NAMED = ((QOS_CLASS, tuple(QoS)), (PRIORITY_CLASS, tuple(Priority)))

Texts = Mapping[str, str] | None


def ignored_settings_of(pod_class: PodClass) -> tuple[str, ...]:
    """Returns those of the pods of a class."""
    found: tuple[str, ...] | None = pod_class.cached.get(ignored_settings_of)
    if found is None:
        found = tuple(ignored_pod_settings(pod_class.labels, pod_class.pod.metadata.annotations))
        pod_class.cached[ignored_settings_of] = found
    return found


def ignored_pod_settings(labels: Texts, annotations: Texts) -> Iterator[str]:
    """Yields each of them, with what it should be."""
    yield from misspelt_settings(labels, annotations)
    for name, known in _NAMED:
        text = (labels or {}).get(name, "")
        if text and text not in known:
            names = [each.value for each in known if each]
            yield f"label {name} is {text!r} and counts as none; give one of {', '.join(names)}"
    text = (labels or {}).get(SUB_PRIORITY, "")
    if text and not is_sub_priority(text):
        yield f"label {SUB_PRIORITY} is {text!r} and counts as 0; give a whole number, such as 5500"
    if not annotations:
        return
    yield from fields_without_effect(annotations)
    text = annotations.get(ESTIMATED_FACTORS, "")
    if text and not read_counts(text):
        yield f'annotation {ESTIMATED_FACTORS} is {text!r} and is ignored; give JSON with percentages, such as {{"cpu": 85}}'
    for name in (ESTIMATED_AFTER_SCHEDULED, ESTIMATED_AFTER_INITIALIZED):
        text = annotations.get(name, "")
        if text and read_whole(text) < 0:
            yield f"annotation {name} is {text!r} and is ignored; give a number of seconds, such as 60"
