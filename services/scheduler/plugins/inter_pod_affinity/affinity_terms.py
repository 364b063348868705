"""The affinity terms of a class of pods, read once."""

from collections.abc import Iterable
from typing import NamedTuple

from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.pod_affinity_terms import Term, affinity_term
from shared.kube.pod import PodAffinity, PodAffinityTerm

_NOBODY = PodAffinity()


class Terms(NamedTuple):
    """All terms of a class of pods; preferred ones with their weights, 1..100."""

    affinity: tuple[Term, ...]
    anti_affinity: tuple[Term, ...]
    preferred: tuple[tuple[Term, int], ...]
    preferred_anti: tuple[tuple[Term, int], ...]


NO_TERMS = Terms((), (), (), ())


def terms_of(pod_class: PodClass) -> Terms:
    """The terms of a class, read once."""
    terms: Terms | None = pod_class.cached.get(Terms)
    if terms is None:
        terms = pod_class.cached[Terms] = _read(pod_class)
    return terms


def _read(pod_class: PodClass) -> Terms:
    affinity = pod_class.pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    near, far = affinity.pod_affinity or _NOBODY, affinity.pod_anti_affinity or _NOBODY
    return Terms(
        affinity=_terms(near.required, pod_class),
        anti_affinity=_terms(far.required, pod_class),
        preferred=tuple(
            (affinity_term(each.pod_affinity_term, pod_class.namespace, pod_class.labels), each.weight)
            for each in near.preferred
        ),
        preferred_anti=tuple(
            (affinity_term(each.pod_affinity_term, pod_class.namespace, pod_class.labels), each.weight)
            for each in far.preferred
        ),
    )


def _terms(terms: Iterable[PodAffinityTerm], pod_class: PodClass) -> tuple[Term, ...]:
    return tuple(affinity_term(term, pod_class.namespace, pod_class.labels) for term in terms)
