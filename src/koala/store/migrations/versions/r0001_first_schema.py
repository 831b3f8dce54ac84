"""The first schema: everything."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create all tables and indexes."""
    op.create_table(
        "books",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("seq", WHOLE, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_books")),
    )
    op.create_table(
        "components",
        sa.Column("token", sa.LargeBinary(), nullable=False),
        sa.Column("job", WHOLE, nullable=False),
        sa.Column("run", WHOLE, nullable=False),
        sa.Column("part", WHOLE, nullable=False),
        sa.Column("parts", WHOLE, nullable=False),
        sa.Column("site", sa.LargeBinary(), nullable=False),
        sa.Column("processors", WHOLE, nullable=False),
        sa.Column("claimed_at", sa.Double(), nullable=False),
        sa.Column("ready_at", sa.Double()),
        sa.Column("released_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("outcome", sa.String()),
        sa.Column("exit_code", WHOLE),
        sa.Column("reason", sa.LargeBinary(), nullable=False),
        sa.Column("pruned", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_components")),
    )
    op.create_index(op.f("ix_components_job"), "components", ["job"])
    op.create_index(op.f("ix_components_pruned_ended_at"), "components", ["pruned", "ended_at"])
    op.create_index(op.f("ix_components_site_ended_at"), "components", ["site", "ended_at"])
    op.create_table(
        "files",
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("size_bytes", WHOLE, nullable=False),
        sa.Column("checksum", sa.LargeBinary(), nullable=False),
        sa.Column("replicas", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_files")),
    )
    op.create_index(op.f("ix_files_head"), "files", ["head"])
    op.create_table(
        "jobs",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("owner", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("priority", sa.String(), nullable=False),
        sa.Column("job_type", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("policy", sa.LargeBinary(), nullable=False),
        sa.Column("processors", WHOLE, nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("reason", sa.LargeBinary(), nullable=False),
        sa.Column("exit_code", WHOLE),
        sa.Column("places", sa.LargeBinary(), nullable=False),
        sa.Column("runs", WHOLE, nullable=False),
        sa.Column("failures", WHOLE, nullable=False),
        sa.Column("preemptions", WHOLE, nullable=False),
        sa.Column("placement_tries", WHOLE, nullable=False),
        sa.Column("claiming_tries", WHOLE, nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("client_token", sa.LargeBinary()),
        sa.Column("explanation", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_owner_client_token"), "jobs", ["owner", "client_token"], unique=True)
    op.create_index(op.f("ix_jobs_owner_id"), "jobs", ["owner", "id"])
    op.create_index(op.f("ix_jobs_owner_state_id"), "jobs", ["owner", "state", "id"])
    op.create_index(op.f("ix_jobs_state_id"), "jobs", ["state", "id"])
    op.create_table(
        "journal",
        sa.Column("seq", WHOLE, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("job", WHOLE),
        sa.Column("site", sa.LargeBinary()),
        sa.Column("owner", sa.LargeBinary()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_journal")),
    )
    op.create_index(
        "ix_journal_job_seq",
        "journal",
        ["job", "seq"],
        sqlite_where=sa.text("job IS NOT NULL"),
        postgresql_where=sa.text("job IS NOT NULL"),
    )
    op.create_index("ix_journal_owner_seq", "journal", ["owner", "seq"])
    op.create_index(
        "ix_journal_site_at",
        "journal",
        ["site", "at"],
        sqlite_where=sa.text("what = 'SiteReported'"),
        postgresql_where=sa.text("what = 'SiteReported'"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.LargeBinary(), nullable=False),
        sa.Column("user", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.LargeBinary(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.create_index(op.f("ix_tokens_secret_hash"), "tokens", ["secret_hash"], unique=True)
    op.create_table(
        "transfers",
        sa.Column("id", sa.LargeBinary(), nullable=False),
        sa.Column("file", sa.LargeBinary(), nullable=False),
        sa.Column("source", sa.LargeBinary(), nullable=False),
        sa.Column("target", sa.LargeBinary(), nullable=False),
        sa.Column("size_bytes", WHOLE, nullable=False),
        sa.Column("chunk", sa.LargeBinary()),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("ok", sa.Boolean()),
        sa.Column("reason", sa.LargeBinary(), nullable=False),
        sa.Column("jobs", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transfers")),
    )
    op.create_table(
        "owed",
        sa.Column("seq", WHOLE, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["seq"], ["journal.seq"], name=op.f("fk_owed_seq")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_owed")),
    )
    op.create_table(
        "transfer_jobs",
        sa.Column("job", WHOLE, autoincrement=False, nullable=False),
        sa.Column("transfer", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["transfer"], ["transfers.id"], name=op.f("fk_transfer_jobs_transfer")),
        sa.PrimaryKeyConstraint("job", "transfer", name=op.f("pk_transfer_jobs")),
    )
