"""Values to YAML text that ``koala.descriptions.yaml.text`` reads as the same values."""

from __future__ import annotations

from typing import Any

import yaml

_WIDTH_MAX = 2_147_483_647  # of a line of YAML, for a library in C


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes scripts as readable blocks, and text with odd characters in escapes."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    style = None
    if not all(line.replace("\t", " ").isprintable() for line in lines):
        style = '"'
    elif len(lines) > 1:
        block = lines[0].strip() != "" and not lines[0].startswith((" ", "\t"))
        style = "|" if block and not any(line != line.rstrip() for line in lines) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def write_yaml(value: Any) -> str:
    """Return the text of a value. Lines are not folded: the meaning of a fold depends on the spaces around it."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH_MAX)
    return text
