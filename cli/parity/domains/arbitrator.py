"""Arbitration of PodMigrationJobs: the filter of pods, the order of jobs, and limits of workloads."""

from cli.parity.case_domain import Domain, Rule
from cli.parity.runners.descheduler.arbitrator import answer, has_deleted_jobs, with_deleted_jobs

DOMAIN = Domain(
    answer,
    rules=(Rule("A deleted PodMigrationJob is forgotten", has_deleted_jobs, with_deleted_jobs),),
    argued_share=0.08,  # in two of three cases that delete a job, it waits at the time
)
