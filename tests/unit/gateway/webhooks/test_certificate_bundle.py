"""Certificates of the webhooks: the next bundle by the stored one and the time."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.webhooks.certificate_bundle import CertificateBundle, Lifetimes, expires_at, next_bundle
from tests.support.hypothesis_examples import examples

NOW = datetime(2026, 5, 1, tzinfo=UTC)
LIFETIMES = Lifetimes(authority=timedelta(days=100), certificate=timedelta(days=9), overlap=timedelta(hours=1))
NAMES = ("webhook.koordinator-system.svc", "127.0.0.1")


def made(now: datetime = NOW, names: tuple[str, ...] = NAMES) -> CertificateBundle:
    bundle = next_bundle(None, names, LIFETIMES, now)
    assert bundle is not None
    return bundle


def trusts(bundle: CertificateBundle, authorities: bytes | None = None) -> bool:
    """Returns whether the certificate was issued by one of the authorities."""
    certificate = x509.load_pem_x509_certificate(bundle.certificate)
    for authority in x509.load_pem_x509_certificates(authorities or bundle.authorities):
        try:
            certificate.verify_directly_issued_by(authority)
        except Exception:  # noqa: BLE001  not this one
            continue
        return True
    return False


def count(bundle: CertificateBundle) -> int:
    return len(x509.load_pem_x509_certificates(bundle.authorities))


def test_a_new_bundle_is_for_its_names_and_survives_a_secret() -> None:
    bundle = made()
    certificate = x509.load_pem_x509_certificate(bundle.certificate)
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in found] == list(NAMES)
    assert trusts(bundle)
    assert CertificateBundle.from_secret(bundle.secret_data()) == bundle
    assert expires_at(bundle.certificate) == NOW + LIFETIMES.certificate
    ssl.create_default_context(cadata=bundle.authorities.decode())


@pytest.mark.parametrize("lost", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_an_incomplete_or_unreadable_secret_is_none(lost: str) -> None:
    data = made().secret_data()
    assert CertificateBundle.from_secret({name: text for name, text in data.items() if name != lost}) is None
    assert CertificateBundle.from_secret(data | {lost: b"x"}) is None


def test_a_certificate_is_renewed_after_two_thirds_of_its_lifetime() -> None:
    bundle = made()
    assert next_bundle(bundle, NAMES, LIFETIMES, NOW + timedelta(days=5.9)) is None
    after = next_bundle(bundle, NAMES, LIFETIMES, NOW + timedelta(days=6.1))
    assert after is not None
    assert after.certificate != bundle.certificate
    assert after.authorities == bundle.authorities
    assert trusts(after)


def test_a_new_host_name_needs_a_new_certificate() -> None:
    after = next_bundle(made(), ("elsewhere.svc",), LIFETIMES, NOW + timedelta(minutes=1))
    assert after is not None
    assert trusts(after)


def step(bundle: CertificateBundle, after: timedelta) -> CertificateBundle:
    """Returns the bundle that is in use at that time after the beginning."""
    return next_bundle(bundle, NAMES, LIFETIMES, NOW + after) or bundle


def test_a_new_authority_is_published_before_it_issues_and_the_old_one_until_it_expires() -> None:
    first = made()
    renewal = timedelta(days=78)
    recent = step(first, renewal)  # of the first authority, so fresh that nothing but the authority is due
    known = step(recent, timedelta(days=81))
    assert (count(known), known.certificate) == (2, recent.certificate)
    assert step(known, timedelta(days=81, minutes=30)) == known
    issued = step(known, timedelta(days=81, hours=2))
    assert not trusts(issued, first.authorities)
    assert trusts(issued)
    assert count(issued) == 2
    later = step(step(issued, timedelta(days=100, minutes=1)), timedelta(days=100, minutes=2))
    assert count(later) == 1
    assert trusts(later)


@given(st.lists(st.floats(0.001, 2), min_size=1, max_size=100))
@settings(max_examples=examples(20), deadline=None)
def test_checked_every_other_day_no_certificate_expires_and_its_authority_was_published_before(
    days: list[float],
) -> None:
    now, bundle = NOW, made()
    for pause in days:
        now += timedelta(days=pause)
        before = bundle
        bundle = next_bundle(bundle, NAMES, LIFETIMES, now) or bundle
        assert trusts(bundle, before.authorities)
        assert expires_at(bundle.certificate) > now
        assert count(bundle) <= 2
