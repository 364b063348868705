"""The devices that classes of pods request, read once for each class."""

from services.scheduler.plugins.device_share.pod_device_requests import RequestedDevices, read_device_requests
from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.state.pod_equivalence_class import PodClass


class RequestsByClass:
    """The requests of classes, cached in the classes."""

    def of(self, pod_class: PodClass) -> RequestedDevices | Rejection | None:
        """The requests of a class; None for one without any."""
        try:
            found: RequestedDevices | Rejection | None = pod_class.cached[self]
        except KeyError:
            requests = read_device_requests(pod_class.pod, pod_class.request)
            found = requests if requests is None or isinstance(requests, Rejection) else RequestedDevices(requests)
            pod_class.cached[self] = found
        return found
