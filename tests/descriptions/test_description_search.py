"""A search for texts that take long to read: hypothesis joins pieces and goes where a character takes longest.

``KOALA_SEARCH_EXAMPLES=5000 pytest tests/descriptions/test_description_search.py`` is the long form.
"""

from __future__ import annotations

import os
from contextlib import suppress

from hypothesis import HealthCheck, Phase, given, settings, target
from hypothesis import strategies as st

from koala.descriptions import DescriptionError, read_job
from tests.support.work import processor_s

EXAMPLES = int(os.environ.get("KOALA_SEARCH_EXAMPLES", "60"))
SIZE = 6_000
# How many times as long as a character of an honest job in YAML one of any text may take. The worst that long
# searches have found takes 12 times as long: RSL in which every character is a word of its own.
RATIO_MAX = 40.0

PIECES = {
    "job.yaml": [
        *"[]{},:-?#&*!|>'\"%@`~ \n\tax1.",
        *("a: ", "- ", "? ", "&a ", "*a ", "<<: *a", "---\n", "...\n", "\\x41", "\\\n", "  ", "!!str ", "%TAG ! x\n"),
        *("processors: 1\n", "components: [", "{processors: 1}, ", "application: {", "arguments: [", "site: x, "),
        *(
            "tasks: {",
            "edges: [",
            "[a, b, 1], ",
            "clusters: [",
            "mcr: 1\n",
            "flexible: {",
            "splits: [",
            "1s",
            "policy: x\n",
        ),
    ],
    "job.rsl": [
        *"()&+|=<>!\"'^#$% \nax1*",
        *(
            "(*",
            "*)",
            "$(",
            "$(a b)",
            "^%",
            "%%",
            "(a=b)",
            "(count=1)",
            "(&(count=1))",
            "(rsl_substitution=",
            "(A $(A))",
        ),
        *("(arguments=", "(environment=", "(fileStageIn=", "(koalaChunkFiles=", "(koalaSplits=", "(jobType=x)"),
    ],
    "job.sbatch": [
        *"#-=,'\"\\ \t\nax1+:",
        *(
            "#SBATCH ",
            "#KOALA ",
            "# SBATCH -n 1",
            "\n#SBATCH -n 1\n",
            "hetjob\n",
            "--x ",
            "--export=",
            "A=1,",
            "-n 1 ",
        ),
        *("--input-file a:", "--splits ", "--policy x ", "--clusters x ", "-t 1:"),
    ],
}
HONEST = "processors: 1\napplication: {executable: a, arguments: [" + "word, " * 950 + "]}"


def reading_s(text: str, source: str, runs: int) -> float:
    """The processor time that a character of the text takes."""

    def read() -> None:
        with suppress(DescriptionError):
            read_job(text, source, known_sites=["west", "east"], known_policies=["WF", "CM"])

    return processor_s(read, runs) / len(text)


@st.composite
def filled_texts(draw: st.DrawFn) -> tuple[str, str]:
    """A text of a fixed size, of a beginning and something that is repeated, with the name it comes under."""
    source = draw(st.sampled_from(sorted(PIECES)))
    piece = st.sampled_from(PIECES[source])
    before = "".join(draw(st.lists(piece, max_size=6)))
    repeated = "".join(draw(st.lists(piece, min_size=1, max_size=5)))
    start = "#!/bin/sh\n" if source == "job.sbatch" else ""
    return (start + before + repeated * (SIZE // len(repeated)))[:SIZE], source


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.generate, Phase.target],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(filled_texts())
def test_no_text_that_is_found_by_a_search_takes_much_longer_than_an_honest_one(found: tuple[str, str]) -> None:
    text, source = found
    once_s = reading_s(text, source, 1)
    target(once_s * 1e6, label="microseconds a character")
    if once_s > RATIO_MAX / 2 * reading_s(HONEST, "job.yaml", 1):
        assert reading_s(text, source, 3) < RATIO_MAX * reading_s(HONEST, "job.yaml", 3)
