"""The arguments of MigrationController in a configuration.

One controller carries out all PodMigrationJobs, also those of clients: that of the first profile with the plugin.
"""

from services.descheduler.configuration.configuration import Configuration
from services.descheduler.configuration.plugin_kinds import MIGRATION_CONTROLLER
from services.descheduler.migration.controller_args import MigrationArgs


def migration_args(configuration: Configuration) -> MigrationArgs | None:
    """Returns the arguments; None where no profile has the plugin, so that no job is carried out."""
    found = (profile.args.get(MIGRATION_CONTROLLER) for profile in configuration.profiles)
    return next((args for args in found if args is not None), None)
