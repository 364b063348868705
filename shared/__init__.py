"""What every service uses: the log, the bus, the service runner, domain and Kubernetes types. Imports no service."""
