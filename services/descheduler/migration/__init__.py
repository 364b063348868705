"""The move of pods by PodMigrationJobs: filters, arbitration, the state machine of a job, and the drain of nodes."""
