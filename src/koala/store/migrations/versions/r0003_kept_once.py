"""Long texts are kept once, submissions in the journal refer to their request, snapshots are in pieces.

Requests are brought into their new form, and large submissions in the journal are cut down to it; small ones stay as
they are, as does the snapshot, which the next one replaces. Nothing here is shared with the code of today: a revision
stays what it was.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TEXT_CHARACTERS_MIN = 256
# A submission of fewer characters stays as it is.
ENTRY_CHARACTERS_MIN = 1_000
# So many rows, or so many characters of them, are brought over at once.
ROWS_AT_ONCE = 500
CHARACTERS_AT_ONCE = 4_194_304


def upgrade() -> None:
    """Make the new tables and columns, and bring requests and submissions over."""
    for name in ("texts", "snapshot_pieces"):
        op.create_table(
            name,
            sa.Column("key", TEXT, nullable=False),
            sa.Column("body", TEXT, nullable=False),
            sa.PrimaryKeyConstraint("key", name=op.f(f"pk_{name}")),
        )
    op.add_column("snapshot", sa.Column("sections", TEXT))
    op.add_column("journal", sa.Column("request_key", TEXT))
    op.create_index("ix_jobs_request_key", "jobs", ["request_key"])
    new_keys = _bring_requests()
    _bring_submissions(new_keys)
    op.drop_index("ix_jobs_request_key", "jobs")


def _bring_requests() -> dict[str, str]:
    """The new key of each request by its old one."""
    connection = op.get_bind()
    new_keys: dict[str, str] = {}
    read = sa.text("SELECT key, body FROM requests WHERE key IN :keys").bindparams(
        sa.bindparam("keys", expanding=True)
    )
    for keys in _some(connection.execute(sa.text("SELECT key, length(body) FROM requests")).all()):
        texts: dict[str, str] = {}
        rows = []
        for old, body in connection.execute(read, {"keys": keys}).all():
            new = _split(json.loads(body), texts)
            new_keys[old] = _key(new)
            rows.append({"old": old, "key": new_keys[old], "body": new})
        kept = [{"key": key, "body": _escaped(text)} for key, text in texts.items()]
        _execute("INSERT INTO texts (key, body) VALUES (:key, :body) ON CONFLICT DO NOTHING", kept)
        _execute("INSERT INTO requests (key, body) VALUES (:key, :body) ON CONFLICT DO NOTHING", rows)
        _execute("UPDATE jobs SET request_key = :key WHERE request_key = :old", rows)
        _execute("DELETE FROM requests WHERE key = :old", [row for row in rows if row["old"] != row["key"]])
    return new_keys


def _bring_submissions(new_keys: dict[str, str]) -> None:
    """Large submissions whose job has its request on record lose it."""
    connection = op.get_bind()
    known = set(new_keys.values())
    read = sa.text(
        "SELECT journal.seq, journal.body, jobs.request_key FROM journal JOIN jobs ON jobs.id = journal.job "
        "WHERE journal.seq IN :keys"
    ).bindparams(sa.bindparam("keys", expanding=True))
    large = sa.text("SELECT seq, length(body) FROM journal WHERE what = 'JobSubmitted' AND length(body) >= :least")
    for seqs in _some(connection.execute(large, {"least": ENTRY_CHARACTERS_MIN}).all()):
        rows = []
        for seq, body, key in connection.execute(read, {"keys": seqs}).all():
            entry = json.loads(body)
            if key in known and _key(_split(entry.pop("request"), {})) == key:
                rows.append({"seq": seq, "key": key, "body": _json({"at": entry["at"], "job": entry["job"]})})
        _execute("UPDATE journal SET body = :body, request_key = :key WHERE seq = :seq", rows)


def _some(found: Any) -> Iterator[list[Any]]:
    """Keys of rows, given with the lengths of these, in groups that fit into memory."""
    keys: list[Any] = []
    characters = 0
    for key, length in found:
        if keys and (len(keys) == ROWS_AT_ONCE or characters + length > CHARACTERS_AT_ONCE):
            yield keys
            keys, characters = [], 0
        keys.append(key)
        characters += length
    if keys:
        yield keys


def _execute(statement: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        op.get_bind().execute(sa.text(statement), rows)


def _split(request: dict[str, Any], texts: dict[str, str]) -> str:
    """The request as it is kept from now on; its long texts are added to ``texts``."""
    numbers: dict[str, int] = {}
    applications: dict[str, int] = {}
    inputs: dict[str, int] = {}
    components = []
    for component in request["components"]:
        for name, found in (("application", applications), ("input_files", inputs)):
            if name in component:
                value = _json(_without_texts(component[name], numbers))
                component[name] = found.setdefault(value, len(found))
        components.append(component)
    kept = {_text_key(text): text for text in numbers}
    texts.update(kept)
    return _json(
        {
            "texts": list(kept),
            "applications": [json.loads(value) for value in applications],
            "inputs": [json.loads(value) for value in inputs],
            "request": {**request, "components": components},
        }
    )


def _without_texts(value: Any, numbers: dict[str, int]) -> Any:
    if isinstance(value, str):
        if len(value) < TEXT_CHARACTERS_MIN:
            return value
        return {"$text": numbers.setdefault(value, len(numbers))}
    if isinstance(value, list):
        return [_without_texts(each, numbers) for each in value]
    if isinstance(value, dict):
        return {name: _without_texts(each, numbers) for name, each in value.items()}
    return value


def _json(value: Any) -> str:
    """Without NUL and halves of surrogate pairs, which no database has in its text."""
    return json.dumps(value, separators=(",", ":"))


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _text_key(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _escaped(value: str) -> str:
    return re.sub(
        "[\\\\\0\ud800-\udfff]",
        lambda found: r"\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}",
        value,
    )
