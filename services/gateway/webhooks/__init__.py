"""Admission webhooks: server, handlers, registration and certificates. The rules are in shared/admission."""
