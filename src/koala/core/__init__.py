"""Everything that decides, without clock, I/O or threads: ``Scheduler.handle(event) -> list[Command]``."""

from koala.core.lifecycle import State
from koala.core.scheduler import Scheduler
from koala.core.state.snapshot import Books, BooksError, decode_books, encode_books
from koala.core.story import Explanation, StoryLine

__all__ = [
    "Books",
    "BooksError",
    "Explanation",
    "Scheduler",
    "State",
    "StoryLine",
    "decode_books",
    "encode_books",
]
