"""Runs services as processes of their own, restarts those that end, and shows how they do."""

from cli.supervisor.supervisor import Spec, Supervisor, Unit
from cli.supervisor.system_servers import Endpoints, Servers

__all__ = ["Endpoints", "Servers", "Spec", "Supervisor", "Unit"]
