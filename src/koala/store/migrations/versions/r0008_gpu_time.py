"""The GPU time that jobs used is counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """A column for it; of the jobs on record nobody knows."""
    op.add_column("jobs", sa.Column("gpu_s", sa.Double(), server_default="0.0", nullable=False))
