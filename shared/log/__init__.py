"""The log: append with a fence, follow without loss, verify. The only package that knows Postgres."""
