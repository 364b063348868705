"""The log: append-only contexts in Postgres, their writers, followers, snapshots and retention."""
