"""The state RELEASING is now UNWINDING: in the rows of jobs and in the snapshot of the core."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Rename the state wherever it is kept."""
    connection = op.get_bind()
    connection.execute(sa.text("UPDATE jobs SET state = 'unwinding' WHERE state = 'releasing'"))
    for number, body in connection.execute(sa.text("SELECT id, body FROM books")).all():
        renamed = sa.text("UPDATE books SET body = :body WHERE id = :number")
        connection.execute(renamed, {"number": number, "body": _renamed(bytes(body))})


def _renamed(snapshot: bytes) -> bytes:
    """The core's snapshot of format 1 with the new name of the state."""
    whole = json.loads(snapshot)
    for job in whole["books"].get("jobs", ()):
        if job["state"] == "releasing":
            job["state"] = "unwinding"
    return json.dumps(whole, separators=(",", ":")).encode()
