"""Runs services as processes of their own, restarts those that end, and shows how they do."""

from cli.supervisor.servers import Endpoints, Servers
from cli.supervisor.supervisor import Spec, Supervisor, Unit

__all__ = ["Endpoints", "Servers", "Spec", "Supervisor", "Unit"]
