"""Certificates of a local cluster: one authority, a server certificate, client certificates, the service-account key."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.file_replacement import replace_file

VALID = timedelta(days=3650)


class Pair(NamedTuple):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> None:
        """Writes NAME.crt and NAME.key into `folder`."""
        replace_file(folder / f"{name}.crt", self.certificate)
        replace_file(folder / f"{name}.key", self.key, mode=0o600)


class Authority(NamedTuple):
    """The cluster's own certificate authority. P-256 throughout: a handshake costs a tenth of an RSA one."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def load_or_create(cls, folder: Path) -> Self:
        """Reads ca.crt and ca.key in `folder`, or makes them."""
        certificate_file, key_file = folder / "ca.crt", folder / "ca.key"
        if certificate_file.exists() and key_file.exists():
            key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise TypeError(f"{key_file} is no elliptic-curve key")
            return cls(x509.load_pem_x509_certificate(certificate_file.read_bytes()), key)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("koordstream-dev")
        signs = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        certificate = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(signs, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        key_file.unlink(missing_ok=True)  # the old one must not be taken for that of the new certificate
        replace_file(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
        replace_file(key_file, _pem(key), mode=0o600)
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        """The authority's certificate, for verification of the others."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, common_name: str, *, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> Pair:
        """Issues a certificate for a server (`hosts`: names and IP addresses) or, without hosts, for a client.

        Kubernetes takes a client's user from the common name and its groups from the organizations.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(_name(common_name, groups), self.certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return Pair(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), _pem(key))


def signing_key() -> bytes:
    """A private key, PEM, that signs service-account tokens (ES256)."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _name(common_name: str, groups: tuple[str, ...] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # a clock that is set back a little still accepts it
        .not_valid_after(now + VALID)
    )
