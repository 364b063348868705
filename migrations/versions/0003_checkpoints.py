"""Checkpoints: the heads of all logs, signed.

Revision: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False, comment="of its event in the context audit"),
        sa.Column("at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("heads", postgresql.JSONB, nullable=False, comment="context -> [seq, digest in hexadecimal]"),
        sa.Column("statement", sa.Text, nullable=False, comment="the text that is signed"),
        sa.Column("public_key", sa.Text, nullable=False, comment="Ed25519, base64"),
        sa.Column("signature", sa.Text, nullable=False, comment="base64"),
    )


def downgrade() -> None:
    op.drop_table("checkpoints")
