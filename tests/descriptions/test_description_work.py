"""The work of a reader grows with the size of the text and not faster, however the text is made.

Each shape is read at one size and at four times that size. Where the time grows with the size the larger one takes
four times as long, where it grows with the square sixteen times; the bound lies between, far from both.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from koala.daemon.api.bodies import check_head, check_json
from koala.daemon.service.cursors import read_cursor
from koala.descriptions import DescriptionError, read_application, read_job, read_machines
from koala.model.errors import ClientError
from tests.support.work import growth

TIMES = 4
# Between 1 and TIMES: how much faster than its size the work may grow.
GROWTH_MAX = 2.2
# What takes less time at the larger size is nobody's trouble.
LEAST_S = 0.03

YAML = {
    "brackets": lambda n: "[" * n,
    "braces": lambda n: "{" * n,
    "entries": lambda n: "a: [" + "x, " * n + "]",
    "empty entries": lambda n: "a: [" + "," * n,
    "dashes": lambda n: "- " * n,
    "question marks": lambda n: "? " * n,
    "colons": lambda n: ": " * n,
    "colons in a row": lambda n: "a" + ":" * n,
    "quotes": lambda n: '"' * n,
    "a quotation": lambda n: 'a: "' + "x" * n,
    "escapes": lambda n: 'a: "' + "\\x41" * n + '"',
    "escaped lines": lambda n: 'a: "' + "\\\n" * n + '"',
    "single quotes": lambda n: "a: '" + "''" * n + "'",
    "tags": lambda n: "a: " + "!" * n,
    "many tags": lambda n: "".join(f"a{k}: !t x\n" for k in range(n)),
    "directives": lambda n: "#\n" + "".join(f"%TAG !t{k}! x\n" for k in range(n)) + "---\na: 1\n",
    "anchors": lambda n: "".join(f"- &a{k} x\n" for k in range(n)),
    "a long anchor": lambda n: "&" + "a" * n + " x",
    "aliases": lambda n: "a: &a x\nb: [" + "*a, " * n + "]",
    "aliased lists": lambda n: "a: &a [x, x, x, x]\nb: [" + "*a, " * n + "]",
    "documents": lambda n: "---\n" * n,
    "comments": lambda n: "#\n" * n,
    "a comment": lambda n: "#" * n,
    "empty lines": lambda n: "a: |\n" + " \n" * n,
    "folded lines": lambda n: "a: >\n" + "  x\n\n" * n,
    "a plain text of lines": lambda n: "a: " + "x\n  " * n,
    "lines without a colon": lambda n: "x\n" * n,
    "spaces": lambda n: "a:" + " " * n + "x",
    "tabs": lambda n: "a:\n" + "\t" * n,
    "unknown keys": lambda n: "processors: 1\n" + "".join(f"k{k}: 1\n" for k in range(n)),
    "the same key": lambda n: "a: 1\n" * n,
    "unknown keys below": lambda n: "application: {" + "".join(f"k{k}: 1, " for k in range(n)) + "}",
    "numbers for texts": lambda n: "processors: 1\napplication: {arguments: [" + "1, " * n + "]}",
    "lists for texts": lambda n: "processors: 1\napplication: {arguments: [" + "[], " * n + "]}",
    "digits": lambda n: "processors: " + "1" * n,
    "a fraction": lambda n: "processors: 1." + "1" * n + "x",
    "a duration": lambda n: "processors: 1\nwalltime: '" + "1s" * n + "'",
    "bad components": lambda n: "components: [" + "{processors: x}, " * n + "]",
    "components at no site": lambda n: "components: [" + "{processors: 1, site: nowhere}, " * n + "]",
    "tasks": lambda n: "mcr: 1\ntasks: {" + "".join(f"t{k}: 1, " for k in range(n)) + "}",
    "edges to nowhere": lambda n: "mcr: 1\ntasks: {a: 1}\nedges: [" + "[a, b, 1], " * n + "]",
    "the same edge": lambda n: "mcr: 1\ntasks: {a: 1, b: 1}\nedges: [" + "[a, b, 1], " * n + "]",
    "indices of an array": lambda n: "processors: 1\narray: '" + "1," * n + "'",
    "jobs before": lambda n: "processors: 1\nafter: {done: [" + "7, " * n + "]}",
    "features": lambda n: "task: {count: 1, constraint: '" + "a&" * n + "a'}",
    "an image": lambda n: "processors: 1\napplication: {executable: a, image: '" + "x/" * n + "'}",
    "bad tasks": lambda n: "components: [" + "{task: {count: 1, gpus: x}}, " * n + "]",
    "clusters of nothing": lambda n: "mcr: 1\ntasks: {a: 1}\nclusters: [" + "[b], " * n + "]",
}
RSL = {
    "parentheses": lambda n: "(" * n,
    "ampersands": lambda n: "&" * n,
    "comments that never end": lambda n: "(*" * n,
    "comments": lambda n: "(**)" * n,
    "quotes": lambda n: '"' * n,
    "quotes in pairs": lambda n: "&(a=" + '"" ' * n + ")",
    "a quotation": lambda n: '&(a="' + '""' * n,
    "marks": lambda n: "&(a=^%" + "%%" * n,
    "variables": lambda n: "$(" * n,
    "a variable of spaces": lambda n: "$(" + " " * n,
    "a variable with a default": lambda n: "$(a " + "b" * n,
    "a variable and spaces": lambda n: "$(" + "a" * n + " " * n,
    "joins": lambda n: "&(a=" + "x#" * n + "x)",
    "hashes": lambda n: "&(a=" + "#" * n,
    "relations": lambda n: "&" + "(count=1)" * n,
    "unknown attributes": lambda n: "&" + "".join(f"(a{k}=1)" for k in range(n)),
    "subrequests": lambda n: "+" + "(&(count=1))" * n,
    "subrequests at no site": lambda n: "+" + "(&(count=1)(resourceManagerContact=x))" * n,
    "chunks": lambda n: (
        "&(fileStageIn="
        + "".join(f"(f{k})" for k in range(n))
        + ")(koalaChunkFiles="
        + " ".join(f"f{k}" for k in range(n))
        + ")"
    ),
    "splits": lambda n: "&(koalaFlexible=yes)(koalaSplits=" + "(1)" * n + ")",
    "spaces": lambda n: " " * n + "&(count=1)",
    "a word": lambda n: "&(" + "a" * n,
    "carets": lambda n: "^" * n,
}
SCRIPT = {
    "hashes": lambda n: "#" * n,
    "unknown options": lambda n: "#SBATCH --x\n" * n,
    "one option": lambda n: "#SBATCH -n 1\n" * n,
    "words": lambda n: "#SBATCH " + "x " * n,
    "quotes": lambda n: "#SBATCH " + "'" * n,
    "backslashes": lambda n: "#SBATCH " + "\\" * n,
    "variables": lambda n: "#SBATCH --export=" + ",".join(f"A{k}=1" for k in range(n)),
    "commas": lambda n: "#SBATCH --export=" + "," * n,
    "quoted commas": lambda n: "#SBATCH --export='" + "A=1," * n + "'",
    "components": lambda n: "#SBATCH -n 1\n#SBATCH hetjob\n" * n,
    "files": lambda n: "".join(f"#KOALA --input-file f{k}\n" for k in range(n)),
    "slips": lambda n: "# SBATCH -n 1\n" * n,
    "spaces": lambda n: "#" + " " * n + "SBATCH",
    "splits": lambda n: "#KOALA --splits " + "1," * n,
    "parts": lambda n: "#KOALA --splits " + "1+" * n,
}
Shape = Callable[[int], str]
SHAPES: list[tuple[str, str, Shape]] = [
    *(("job.yaml", name, shape) for name, shape in YAML.items()),
    *(("job.rsl", name, shape) for name, shape in RSL.items()),
    *(("job.sbatch", name, lambda n, shape=shape: "#!/bin/sh\n" + shape(n)) for name, shape in SCRIPT.items()),
]
SIZES = {"job.yaml": 1_000, "job.rsl": 1_500, "job.sbatch": 600}


@pytest.mark.parametrize(("source", "shape"), [(s, f) for s, _, f in SHAPES], ids=[f"{s}-{n}" for s, n, _ in SHAPES])
def test_the_work_of_reading_a_job_grows_with_its_text_and_not_faster(source: str, shape: Shape) -> None:
    def reading(size: int) -> Callable[[], None]:
        text = shape(size)

        def read() -> None:
            with suppress(DescriptionError):
                read_job(text, source, known_sites=["west", "east"], known_policies=["WF"])

        return read

    assert growth(reading, SIZES[source], TIMES, LEAST_S) < GROWTH_MAX


LARGE_FILES: dict[str, tuple[Callable[[str, str], object], Shape]] = {
    "tasks": (read_application, lambda n: "mcr: 1\ntasks: {" + "".join(f"t{k}: 1, " for k in range(n)) + "}"),
    "bad edges": (read_application, lambda n: "mcr: 1\ntasks: {a: 1}\nedges: [" + "[a, b, 1], " * n + "]"),
    "unknown keys": (read_application, lambda n: "".join(f"k{k}: 1\n" for k in range(n))),
    "machines": (read_machines, lambda n: "lans: {a: [" + "{power: x}, " * n + "]}"),
}


@pytest.mark.parametrize("name", LARGE_FILES)
def test_the_work_of_reading_a_task_graph_or_machines_grows_with_the_text_and_not_faster(name: str) -> None:
    read_large, shape = LARGE_FILES[name]

    def reading(size: int) -> Callable[[], None]:
        text = shape(size)

        def read() -> None:
            with suppress(DescriptionError):
                read_large(text, "file.yaml")

        return read

    assert growth(reading, 1_000, TIMES, LEAST_S) < GROWTH_MAX


BODIES: dict[str, Callable[[int], bytes]] = {
    "quotes": lambda n: b'"' * n,
    "escaped quotes": lambda n: b'"' + b'\\"' * n,
    "escaped quotes that end": lambda n: b'"' + b'\\"' * n + b'"',
    "backslashes": lambda n: b"\\" * n,
    "empty strings": lambda n: b"[" + b'"",' * n,
    "brackets": lambda n: b"[" * n,
    "matching brackets": lambda n: b"[" * n + b"]" * n,
    "flat brackets": lambda n: b"[]," * n,
    "nearly NUL": lambda n: b'"' + b"\\u000" * n,
    "not UTF-8": lambda n: b"\xc3\xa9" * n + b"\xff",
}


@pytest.mark.parametrize("name", BODIES)
def test_the_work_of_checking_a_body_grows_with_it_and_not_faster(name: str) -> None:
    def checking(size: int) -> Callable[[], None]:
        body = BODIES[name](size)

        def check() -> None:
            with suppress(ClientError):
                check_json(body)

        return check

    assert growth(checking, 250_000, TIMES, LEAST_S) < GROWTH_MAX


@pytest.mark.parametrize("piece", [b"%", b"%4", b"%41", b"a=b&", b"%c3%a9", b"koala_", b"+"])
def test_the_work_of_checking_an_address_and_headers_grows_with_them_and_not_faster(piece: bytes) -> None:
    def checking(size: int) -> Callable[[], None]:
        scope = {
            "headers": [(b"a", piece)] * size,
            "raw_path": piece * size,
            "path": "",
            "query_string": piece * size,
        }

        def check() -> None:
            with suppress(ClientError):
                check_head(scope)

        return check

    assert growth(checking, 2_000, TIMES, LEAST_S) < GROWTH_MAX


@pytest.mark.parametrize("piece", ["A", "=", "-", "_", "é"])
def test_the_work_of_reading_a_cursor_grows_with_it_and_not_faster(piece: str) -> None:
    def reading(size: int) -> Callable[[], None]:
        cursor = piece * size

        def read() -> None:
            with suppress(ClientError):
                read_cursor("jobs", cursor)

        return read

    assert growth(reading, 2_000, TIMES, LEAST_S) < GROWTH_MAX


# ------------------------------------------------------------------------------------------ patterns

LOOKING = ("search", "sub", "findall", "finditer", "split")
READ_USERS_TEXT = ("descriptions", "daemon", "model", "policies", "runners", "sites", "store", "client")


def patterns() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes], str]]:
    """Every pattern that a module holds, with the way in which the module uses it."""
    for room in READ_USERS_TEXT:
        package = importlib.import_module(f"koala.{room}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            source = inspect.getsource(module)
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern):
                    # What is only ever compared with a whole text need not be quick to find in one.
                    ways = [
                        way for way in ("search", "sub", "findall", "finditer", "split") if f"{name}.{way}(" in source
                    ]
                    yield f"{found.name}.{name}", value, "search" if ways else "fullmatch"


PATTERNS = {name: (pattern, way) for name, pattern, way in patterns()}


def hostile_texts(pattern: str) -> Iterator[tuple[str, str]]:
    """What to repeat and what to end with, from the signs that the pattern itself speaks of."""
    literal = re.sub(r"\\[A-Za-z]|[\[\]{}()*+?|^$]", " ", pattern)
    signs = list(dict.fromkeys([*"a0 _", *(sign for sign in literal if not sign.isspace())]))[:10]
    pieces = [*signs, *(one + other for one in signs[:6] for other in signs[:6] if one != other)]
    for piece in pieces:
        yield piece, ""
        yield piece, "\n!"


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_looks_at_a_text_once_whatever_is_repeated_in_it(name: str) -> None:
    pattern, way = PATTERNS[name]
    is_text = isinstance(pattern.pattern, str)
    written = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    for piece, end in hostile_texts(written):

        def looking(size: int, piece: str = piece, end: str = end) -> Callable[[], object]:
            text = piece * size + end
            subject = text if is_text else text.encode()
            return lambda: getattr(pattern, way)(subject)

        assert growth(looking, 5_000, TIMES, LEAST_S) < GROWTH_MAX, (piece, end)


def test_the_patterns_of_the_readers_are_all_there() -> None:
    assert len(PATTERNS) > 30
    assert PATTERNS["koala.descriptions.errors.CONTROL"][1] == "search"
