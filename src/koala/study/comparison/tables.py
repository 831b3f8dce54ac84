"""Rows of a study as files that other programs read: CSV, and Parquet where its library is installed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

# The extra of the package that brings the library for Parquet, and the library.
PARQUET_EXTRA = "parquet"


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows with a header line; an empty cell is a value that there is not."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys() if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """The same rows as a Parquet file, with a null where there is no value."""
    import pyarrow
    import pyarrow.parquet

    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), content)
    return content.getvalue()
