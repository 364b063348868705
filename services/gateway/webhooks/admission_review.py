"""AdmissionReview requests and responses. Source: Kubernetes' admission.k8s.io/v1."""

from base64 import b64encode
from typing import Any

import msgspec

from services.gateway.webhooks.json_patch import patch
from shared.errors import KoordError
from shared.kube.json_text import decode_with
from shared.kube.meta import KubeStruct

Raw = dict[str, Any]


class User(KubeStruct, frozen=True):
    """User that makes the request."""

    username: str = ""


class Request(KubeStruct, frozen=True):
    """Request of a review. `object` is null on DELETE, `old_object` on CREATE."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    object: Raw | None = None
    old_object: Raw | None = None
    user_info: User = User()
    dry_run: bool = False

    @property
    def subject(self) -> Raw:
        """Returns the object that the request is about."""
        return self.object or self.old_object or {"metadata": {"name": self.name, "namespace": self.namespace}}


class _Review(KubeStruct, frozen=True):
    api_version: str
    request: Request


class BadReview(KoordError):
    """The body of a request is no AdmissionReview."""


_decoder = msgspec.json.Decoder(_Review)


def read(body: bytes) -> Request:
    """Decodes the request of a review.

    Raises:
        BadReview: the body is no AdmissionReview of admission.k8s.io/v1.
    """
    try:
        review = decode_with(_decoder, body)
    except msgspec.MsgspecError as error:
        raise BadReview(f"the body is no AdmissionReview: {error}") from error
    if review.api_version != "admission.k8s.io/v1":
        raise BadReview(f"AdmissionReview of {review.api_version} is not supported; configure admission.k8s.io/v1")
    return review.request


def allowed(request: Request, after: Raw | None = None) -> bytes:
    """Returns the response that admits the object, with a patch to `after` if given."""
    response: Raw = {"uid": request.uid, "allowed": True}
    if after is not None and (steps := patch(request.object, after)):
        response |= {"patchType": "JSONPatch", "patch": b64encode(msgspec.json.encode(steps)).decode()}
    return _encoded(response)


def refused(request: Request, code: int, reason: str, message: str) -> bytes:
    """Returns the response that rejects the object."""
    status = {"status": "Failure", "code": code, "reason": reason, "message": message}
    return _encoded({"uid": request.uid, "allowed": False, "status": status})


def _encoded(response: Raw) -> bytes:
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
