"""Rows of a study as files for other programs: CSV, and Parquet if its library is installed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

# The extra of the package that installs the library for Parquet, and the library.
PARQUET_EXTRA = "parquet"


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows with a header line; an empty cell is a missing value."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys() if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return the same rows as a Parquet file, with a null for a missing value."""
    import pyarrow
    import pyarrow.parquet

    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), content)
    return content.getvalue()
