"""Records a real run of ``koala demo`` as an SVG that needs no fonts or files from elsewhere: docs/images/demo.svg.

The run is live, so its times differ from picture to picture; its story does not.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

TARGET = Path(__file__).resolve().parent / "images" / "demo.svg"
COLUMNS = 84
TIMEOUT_S = 300
THEME = TerminalTheme(
    (18, 24, 32),
    (214, 222, 230),
    [(18, 24, 32), (240, 113, 120), (130, 200, 120), (250, 200, 90), (100, 160, 240), (200, 140, 230), (80, 200, 200),
     (214, 222, 230)],
    [(110, 122, 136), (255, 140, 146), (160, 225, 150), (255, 220, 120), (140, 190, 255), (225, 170, 250),
     (120, 225, 225), (255, 255, 255)],
)  # fmt: skip


def main() -> None:
    """Run the demo as a terminal would see it, and draw what it prints."""
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    command = [str(Path(sys.executable).with_name("koala")), "demo", "--still"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)  # noqa: S603 - our own
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in done.stdout.rstrip().splitlines():
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)
    svg = console.export_svg(title="koala demo", theme=THEME, unique_id="demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "'DejaVu Sans Mono', Menlo, Consolas, monospace")
    TARGET.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
