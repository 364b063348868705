"""The webhooks' own authority and certificate: made, renewed before they end, and never all at once.

A new authority is made known before anything that it has issued is used, and the one before it stays known until it has expired.
Everything is decided from what is kept and the time: whichever replica looks, and however often, comes to the same next step.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCKS_DIFFER = timedelta(minutes=5)
"""By how much a certificate is valid earlier than it was made."""


class Terms(NamedTuple):
    """How long things last.

    Attributes:
        overlap: how long a new authority is known before it issues.
    """

    authority: timedelta
    certificate: timedelta
    overlap: timedelta


class Bundle(NamedTuple):
    """What is kept, all PEM.

    Attributes:
        authorities: certificates, newest first.
        authority_key: of the newest.
        certificate, key: what the server shows.
    """

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def of(cls, data: dict[str, bytes]) -> Self | None:
        """Read a Secret's data; None when something is missing or unreadable."""
        try:
            found = cls(data["ca.crt"], data["ca.key"], data["tls.crt"], data["tls.key"])
            x509.load_pem_x509_certificates(found.authorities)
            x509.load_pem_x509_certificate(found.certificate)
            for key in (found.authority_key, found.key):
                serialization.load_pem_private_key(key, password=None)
        except (KeyError, ValueError, TypeError):
            return None
        return found

    def data(self) -> dict[str, bytes]:
        """As a Secret's data."""
        return {
            "ca.crt": self.authorities,
            "ca.key": self.authority_key,
            "tls.crt": self.certificate,
            "tls.key": self.key,
        }


def renewed(bundle: Bundle | None, names: Sequence[str], terms: Terms, now: datetime) -> Bundle | None:
    """The next bundle; None while this one will do.

    Args:
        names: host names and addresses under which the server is called, the first of them its common name.
    """
    if bundle is None:
        authority, key = _authority(terms, now)
        return _issued(Bundle(_pem(authority), _key_pem(key), b"", b""), names, terms, now)
    authorities = x509.load_pem_x509_certificates(bundle.authorities)
    newest, certificate = authorities[0], x509.load_pem_x509_certificate(bundle.certificate)
    if newest.not_valid_after_utc <= now:
        return renewed(None, names, terms, now)
    if _spent(newest, now) > 0.8:
        authority, key = _authority(terms, now)
        known = [authority, *(each for each in authorities if each.not_valid_after_utc > now)]
        return bundle._replace(authorities=b"".join(map(_pem, known)), authority_key=_key_pem(key))
    issues = len(authorities) == 1 or now - _made(newest) >= terms.overlap or certificate.not_valid_after_utc <= now
    stale = _spent(certificate, now) > 2 / 3 or _names(certificate) != list(names) or not _by(newest, certificate)
    if stale and issues:
        return _issued(bundle, names, terms, now)
    valid = [each for each in authorities if each.not_valid_after_utc > now]
    return bundle._replace(authorities=b"".join(map(_pem, valid))) if len(valid) < len(authorities) else None


def _issued(bundle: Bundle, names: Sequence[str], terms: Terms, now: datetime) -> Bundle:
    authority = x509.load_pem_x509_certificates(bundle.authorities)[0]
    signer = serialization.load_pem_private_key(bundle.authority_key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey), "we make no others"
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + terms.certificate, authority.not_valid_after_utc)
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


def _authority(terms: Terms, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"koordstream-webhook-{now:%Y%m%d%H%M%S}"
    signs = x509.KeyUsage(
        digital_signature=False, key_cert_sign=True, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        _builder(name, _name(name), key.public_key(), now, now + terms.authority)
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
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(ends)
    )


def _by(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001  whatever does not hold, it was not issued by it
        return False
    return True


def _spent(certificate: x509.Certificate, now: datetime) -> float:
    """Which share of its life is over."""
    made = _made(certificate)
    return (now - made) / (certificate.not_valid_after_utc - made)


def _made(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + CLOCKS_DIFFER


def ends(certificate: bytes) -> datetime:
    """Until when a certificate is valid."""
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
