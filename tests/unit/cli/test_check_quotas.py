"""Findings of the doctor about rejected quotas."""

from cli.doctor.check_quotas import NAMED, about_ignored_quota_settings, about_rejected_quotas
from cli.quota.render import QuotaFault


def test_further_rejected_quotas_are_named_where_they_are_few_and_counted_otherwise() -> None:
    faults = [QuotaFault(f"Quota q{each} is rejected", f"q{each}", "d") for each in range(2 * NAMED + 1)]
    assert [each.what for each in about_rejected_quotas(faults[: NAMED + 1])][NAMED] == "more rejected quotas: q3"
    assert [each.what for each in about_rejected_quotas(faults)][NAMED] == "more rejected quotas: 4"


def test_a_quota_with_many_faults_is_one_of_the_others_once() -> None:
    faults = [QuotaFault(f"Quota a: label x{each} is unknown", "a", "d") for each in range(NAMED + 2)]
    *_, last = about_ignored_quota_settings([*faults, QuotaFault("Quota b: label y is unknown", "b", "d")])
    assert last.what == "more quotas with settings that have no effect: a, b"
