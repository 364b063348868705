"""Requirements of classes of pods on CPUs and NUMA zones, read once for each class."""

from collections.abc import Hashable
from functools import cached_property

from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.plugins.node_numa_resource.pod_requirements import PodRequirements, read_requirements
from services.scheduler.state.pod_equivalence_class import PodClass


class PodClassRequirements:
    """The requirements of a class, with a key that is equal for equal ones."""

    def __init__(self, requirements: PodRequirements) -> None:
        self.requirements = requirements

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal for equal requirements."""
        requirements, designated = self.requirements, self.requirements.designated
        allocated = designated and (
            designated.cpus,
            tuple((numa, tuple(sorted(a.items()))) for numa, a in designated.zones),
        )
        return (tuple(sorted(requirements.requests.items())), *requirements[1:-1], allocated)


class RequirementsByClass:
    """The requirements of classes, cached in the classes."""

    def __init__(self, default_bind: str) -> None:
        """Begins without any.

        Args:
            default_bind: the bind policy of pods that name none.
        """
        self._default_bind = default_bind

    def of(self, pod_class: PodClass) -> PodClassRequirements | Rejection | None:
        """The requirements of a class; None for one without any requests."""
        try:
            found: PodClassRequirements | Rejection | None = pod_class.cached[self]
        except KeyError:
            requirements = read_requirements(pod_class.pod, pod_class.request, self._default_bind)
            found = PodClassRequirements(requirements) if isinstance(requirements, PodRequirements) else requirements
            pod_class.cached[self] = found
        return found
