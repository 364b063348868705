"""Transports of reports and actions to ingest, over MQTT or NATS, and the outbox behind them."""
