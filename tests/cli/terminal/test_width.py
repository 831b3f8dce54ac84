"""What verbs print fits the terminal: long errors, and the table of sites with all that it can show."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from koala.cli.errors import UserError, say, wrapped
from koala.cli.job.list import jobs_table
from koala.cli.site.command import EXCLUDED_SHOWN_MAX, excluded_lines, license_lines, sites_table
from koala.cli.terminal.words import site_state
from koala.model.api import ExcludedNode, LicensePool, SiteInfo
from tests.support.grid_forms import job, site

LONG = "the job asks for what there is nowhere, in so many words that no line of a terminal holds them; ask for less"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_error_is_broken_between_words_on_a_terminal_alone() -> None:
    screen, pipe = _Terminal(), io.StringIO()
    UserError(LONG).show(screen)
    UserError(LONG).show(pipe)
    lines = screen.getvalue().splitlines()
    assert len(lines) > 1
    assert " ".join(lines) == f"Error: {LONG}"
    assert pipe.getvalue() == f"Error: {LONG}\n"
    say(LONG, screen)
    assert all(len(line) <= 80 for line in screen.getvalue().splitlines())


def test_a_line_of_a_users_text_stays_whole() -> None:
    quoted = f"  {LONG}\n{'^':>90}"
    assert (
        wrapped(f"job.yaml:1:1: it is wrong\n{quoted}\n  do so", 40)
        == f"job.yaml:1:1: it is wrong\n{quoted}\n  do so"
    )
    assert all(line.startswith("  ") for line in wrapped(f"  {LONG}", 40).splitlines())


def test_what_tells_elements_of_an_array_apart_is_not_cut_off() -> None:
    name = "a-sweep-with-a-long-name[59]"
    table = jobs_table([job(66, "running", name=name, array=6, array_index=59), job(7, name=name)], {})
    cells = list(table.columns[1].cells)
    assert [str(each) for each in cells] == [
        "a-sweep-wit\N{HORIZONTAL ELLIPSIS}[59]",
        "a-sweep-with-a-\N{HORIZONTAL ELLIPSIS}",
    ]


def test_the_table_of_sites_fits_eighty_columns() -> None:
    site = msgspec.convert(
        {
            "name": "a-site-with-a-long-name", "kind": "grid_engine", "processors": 12_800, "usable": 12_800,
            "ours": 3_000, "others": 2_000, "idle": 7_800, "earmarked": 0, "trust": "usable", "drained": False,
            "errors": 0, "jobs": [17, 18, 19, 20, 21], "silent_since": 1.0,
            "gpus": [{"kind": "a100", "total": 16, "idle": 12}],
        },
        SiteInfo,
    )  # fmt: skip
    for width in (80, 100, 140):
        out = Console(width=width, file=io.StringIO(), color_system=None)
        out.print(sites_table([site], 100_000.0, width))
        assert isinstance(out.file, io.StringIO)
        printed = out.file.getvalue()
        assert all(len(line.rstrip()) <= width for line in printed.splitlines()), printed
        assert "12800" in printed
        assert "12/16 a100" in printed
        assert ("grid_engine" in printed) == (width > 80)


def test_pools_of_licences_are_told_with_who_holds_them() -> None:
    pools = [
        LicensePool(name="ansys", total=4, left=1, jobs=[12, 17]),
        LicensePool(name="matlab", total=1, left=1, shared=True),
    ]
    assert license_lines(site("delft", licenses=pools)) == [
        "delft: 1 of 4 licences of ansys left, held by 12, 17",
        "delft: 1 of 1 licence of matlab left for all sites together",
    ]


def test_nodes_that_programs_are_kept_off_are_told_instead_of_ok() -> None:
    held = [
        ExcludedNode(node=f"n{number}", program="./solve", owner="ann", reason="exit code 127", until=700.0)
        for number in range(EXCLUDED_SHOWN_MAX + 2)
    ]
    open_site, closed = site("a", excluded=held), site("a", excluded=[msgspec.structs.replace(held[0], closes=True)])
    assert [site_state(each)[0] for each in (site(), open_site, closed)] == ["ok", "nodes excluded", "not for all"]
    lines = excluded_lines(open_site, 100.0)
    assert lines[0] == "a: ./solve of ann is kept off n0 for 10m00s: exit code 127"
    assert lines[-1] == "a: and 2 more (--json)"
    assert excluded_lines(closed, 100.0)[0].endswith(
        "; no node is left there, so that it goes elsewhere while it can"
    )
