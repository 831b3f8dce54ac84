"""A job may be an array, or an element of one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Columns for it; the jobs on record are neither."""
    op.add_column("jobs", sa.Column("array", WHOLE, nullable=True))
    op.add_column("jobs", sa.Column("array_index", WHOLE, nullable=True))
    op.add_column("jobs", sa.Column("elements", TEXT, nullable=True))
    op.create_index("ix_jobs_array_id", "jobs", ["array", "id"])
