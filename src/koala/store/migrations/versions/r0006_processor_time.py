"""What was gained and wasted of processor time before a job ran is counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Columns for it; of the jobs on record nobody knows."""
    op.add_column("jobs", sa.Column("gained_processor_s", sa.Double(), server_default="0.0", nullable=False))
    op.add_column("jobs", sa.Column("wasted_processor_s", sa.Double(), server_default="0.0", nullable=False))
