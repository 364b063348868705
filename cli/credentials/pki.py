"""A certificate authority of the installation's own, and its servers' certificates."""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cli.credentials.secrets_file import write_private
from shared.file_replacement import replace_file

AUTHORITY = "Koordstream installation"
AUTHORITY_FOR = timedelta(days=3650)
SERVER_FOR = timedelta(days=397)
RENEW_BEFORE = timedelta(days=30)
_SKEW = timedelta(hours=1)


class Authority:
    """The authority of a folder: `ca.crt` and `ca.key`, made when they are absent."""

    def __init__(self, folder: Path) -> None:
        certificate, key = folder / "ca.crt", folder / "ca.key"
        if not (certificate.exists() and key.exists()):
            self._make(certificate, key)
        self.pem = certificate.read_text()
        self._certificate = x509.load_pem_x509_certificate(certificate.read_bytes())
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded

    def serve(self, folder: Path, hosts: Iterable[str], *, renew: bool = False) -> None:
        """Puts `ca.crt`, `server.crt` and `server.key` into a folder; a certificate with these names that lasts is left
        alone.
        """
        names = sorted({*hosts, "localhost", "127.0.0.1"})
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / "ca.crt", self.pem.encode())
        certificate, key_file = folder / "server.crt", folder / "server.key"
        if not renew and certificate.exists() and ends_at(certificate) - datetime.now(UTC) > RENEW_BEFORE:
            loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
            issued_here = loaded.issuer == self._certificate.subject
            if _names_of(loaded) == names and issued_here and _belong_together(loaded, key_file):
                return
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        made = (
            _builder(names[0], key, SERVER_FOR)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        write_private(key_file, _private(key))
        replace_file(certificate, made.public_bytes(serialization.Encoding.PEM))

    @staticmethod
    def _make(certificate: Path, key_file: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        made = (
            _builder(AUTHORITY, key, AUTHORITY_FOR)
            .issuer_name(_named(AUTHORITY))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        certificate.unlink(missing_ok=True)  # an old one must not be taken for that of the new key
        write_private(key_file, _private(key))
        replace_file(certificate, made.public_bytes(serialization.Encoding.PEM))


def ends_at(certificate: Path) -> datetime:
    """When a certificate is no longer valid."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def _builder(name: str, key: ec.EllipticCurvePrivateKey, lasts: timedelta) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lasts)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _names_of(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return sorted(str(name.value) for name in found)


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _belong_together(certificate: x509.Certificate, key_file: Path) -> bool:
    """Reports whether the key is the certificate's: a process may have been killed between the two files."""
    if not key_file.exists():
        return False
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    return key.public_key() == certificate.public_key()


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode()
