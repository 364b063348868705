"""Admission webhooks: what the API server is told about objects before it stores them. Rules are in shared/admission."""
