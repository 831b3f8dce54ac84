"""A job may say how long its workspaces are kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """A column for it; the components on record are kept as long as all were."""
    op.add_column("components", sa.Column("keep_for_s", sa.Double(), nullable=True))
