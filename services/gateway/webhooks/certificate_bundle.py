"""Certificate authority and server certificate of the webhooks: issued, and renewed before they expire, one at a time.

A new authority is published before a certificate that it has issued is used, and the previous one stays published until
it has expired. The next step follows from the stored bundle and the time alone, so every replica computes the same one.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

MAX_CLOCK_SKEW = timedelta(minutes=5)
"""A certificate is valid from this long before its issue, for API servers whose clock is late."""


class Lifetimes(NamedTuple):
    """Lifetimes of authority and certificate.

    Attributes:
        overlap: time for which a new authority is published before it issues certificates.
    """

    authority: timedelta
    certificate: timedelta
    overlap: timedelta


class CertificateBundle(NamedTuple):
    """Content of the Secret, all PEM.

    Attributes:
        authorities: certificates of the authorities, newest first.
        authority_key: key of the newest.
        certificate, key: of the server.
    """

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def from_secret(cls, data: dict[str, bytes]) -> Self | None:
        """Reads a Secret's data; None if a part is missing or unreadable."""
        try:
            found = cls(data["ca.crt"], data["ca.key"], data["tls.crt"], data["tls.key"])
            x509.load_pem_x509_certificates(found.authorities)
            x509.load_pem_x509_certificate(found.certificate)
            for key in (found.authority_key, found.key):
                serialization.load_pem_private_key(key, password=None)
        except (KeyError, ValueError, TypeError):
            return None
        return found

    def secret_data(self) -> dict[str, bytes]:
        """Returns the data of the Secret."""
        return {
            "ca.crt": self.authorities,
            "ca.key": self.authority_key,
            "tls.crt": self.certificate,
            "tls.key": self.key,
        }


def next_bundle(
    bundle: CertificateBundle | None, names: Sequence[str], lifetimes: Lifetimes, now: datetime
) -> CertificateBundle | None:
    """Returns the next bundle; None if this one needs no change.

    Args:
        names: host names and addresses of the server; the first is the certificate's common name.
    """
    if bundle is None:
        authority, key = _authority(lifetimes, now)
        return _issued(CertificateBundle(_pem(authority), _key_pem(key), b"", b""), names, lifetimes, now)
    authorities = x509.load_pem_x509_certificates(bundle.authorities)
    newest, certificate = authorities[0], x509.load_pem_x509_certificate(bundle.certificate)
    if newest.not_valid_after_utc <= now:
        return next_bundle(None, names, lifetimes, now)
    if _elapsed_share(newest, now) > 0.8:
        authority, key = _authority(lifetimes, now)
        known = [authority, *(each for each in authorities if each.not_valid_after_utc > now)]
        return bundle._replace(authorities=b"".join(map(_pem, known)), authority_key=_key_pem(key))
    # The API server trusts the new authority once it has read the configuration objects; until then the certificate of
    # the old one stays in use.
    may_issue = (
        len(authorities) == 1 or now - _issued_at(newest) >= lifetimes.overlap or certificate.not_valid_after_utc <= now
    )
    stale = (
        _elapsed_share(certificate, now) > 2 / 3
        or _names(certificate) != list(names)
        or not _is_issued_by(newest, certificate)
    )
    if stale and may_issue:
        return _issued(bundle, names, lifetimes, now)
    valid = [each for each in authorities if each.not_valid_after_utc > now]
    return bundle._replace(authorities=b"".join(map(_pem, valid))) if len(valid) < len(authorities) else None


def _issued(bundle: CertificateBundle, names: Sequence[str], lifetimes: Lifetimes, now: datetime) -> CertificateBundle:
    authority = x509.load_pem_x509_certificates(bundle.authorities)[0]
    signer = serialization.load_pem_private_key(bundle.authority_key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey), "_authority makes no others"
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + lifetimes.certificate, authority.not_valid_after_utc)
    certificate = (
        _builder(names[0], authority.subject, key.public_key(), now, ends)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )  # fmt: skip
    return bundle._replace(certificate=_pem(certificate), key=_key_pem(key))


def _authority(lifetimes: Lifetimes, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"koordstream-webhook-{now:%Y%m%d%H%M%S}"
    signs = x509.KeyUsage(
        digital_signature=False, key_cert_sign=True, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        _builder(name, _name(name), key.public_key(), now, now + lifetimes.authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name[:64]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - MAX_CLOCK_SKEW)
        .not_valid_after(ends)
    )


def _is_issued_by(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001  any failed check means that the authority has not issued the certificate
        return False
    return True


def _elapsed_share(certificate: x509.Certificate, now: datetime) -> float:
    """Returns the elapsed share of a certificate's lifetime."""
    made = _issued_at(certificate)
    return (now - made) / (certificate.not_valid_after_utc - made)


def _issued_at(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + MAX_CLOCK_SKEW


def expires_at(certificate: bytes) -> datetime:
    """Returns the time until which a certificate is valid."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.astimezone(UTC)


def _names(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
