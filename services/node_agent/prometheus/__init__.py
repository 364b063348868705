"""The agent's metrics page in Prometheus' exposition format, with koordlet's series names."""
