"""The index over rare types covers reports that are ignored, which `koord doctor` looks for in all nodes at once.

Revision: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

BEFORE = (
    "type in ('koord.log.ConfigApplied.v1', 'koord.log.ConfigRejected.v1', 'koord.log.CarriedForward.v1', "
    "'koord.log.WriterStarted.v1', 'koord.cluster.MissingPermission.v1', 'koord.cluster.NodeObserved.v1', 'koord.cluster.NodeDeleted.v1')"
)
AFTER = BEFORE.removesuffix(")") + ", 'koord.slo.NodeReportsIgnored.v1', 'koord.slo.NodeReportsBelieved.v1')"


def upgrade() -> None:
    _rebuild(AFTER)


def downgrade() -> None:
    _rebuild(BEFORE)


def _rebuild(rare: str) -> None:
    op.drop_index("events_rare_type_seq", "events")
    op.create_index("events_rare_type_seq", "events", ["type", "seq"], postgresql_where=sa.text(rare))
