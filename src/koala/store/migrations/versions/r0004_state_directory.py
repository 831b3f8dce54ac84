"""A database says which state directory it belongs to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """A table for it; whoever opens the database next is the one."""
    op.create_table(
        "state_directory",
        sa.Column("identity", TEXT, nullable=False),
        sa.Column("host", TEXT, nullable=False),
        sa.Column("path", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("identity", name="pk_state_directory"),
    )
