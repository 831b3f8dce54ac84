"""The fields and limits that all answers of the API share."""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

# Limits on one call.
DESCRIPTION_BYTES_MAX = 1_048_576
CLIENT_TOKEN_CHARACTERS_MAX = 128
PAGE_ITEMS_MAX = 1_000
PAGE_ITEMS_DEFAULT = 100
WAIT_S_MAX = 60.0
WALLTIME_S_MAX = 1e9
OUTPUT_BYTES_MAX = 1_048_576
WHY_CHARACTERS_MAX = 200

Item = TypeVar("Item")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A value that answers a caller, alone or as part of another answer."""

    # The name in the OpenAPI document, where it differs from the name in the code.
    document_name: ClassVar[str] = ""

    @classmethod
    def of(cls, value: object, /, **others: Any) -> Self:
        """Copy the fields that the value has under the same name; take the rest from ``others``."""
        names = [name for name in cls.__struct_fields__ if name not in others and hasattr(value, name)]
        return cls(**{name: getattr(value, name) for name in names}, **others)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Give the framework that writes the OpenAPI document the fields, and the function that serializes the
        value."""
        from pydantic_core import core_schema  # for the daemon: the core does without it

        items = "".join(f"[{each.__name__}]" for each in getattr(source, "__args__", ()))
        title = (cls.document_name or cls.__name__) + items
        fields = []
        for field in msgspec.structs.fields(source):
            schema = handler.generate_schema(field.type)
            if not field.required:
                default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
                schema = core_schema.with_default_schema(schema, default=default)
            fields.append(core_schema.dataclass_field(field.name, schema, kw_only=True))
        return core_schema.dataclass_schema(
            cls,
            core_schema.dataclass_args_schema(title, fields),
            [*cls.__struct_fields__],
            ref=f"{cls.__module__}.{title}:{id(source)}",
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
            metadata={"pydantic_js_updates": {"title": title}},
        )


class Scope(enum.StrEnum):
    """What a token allows. Each scope is granted separately."""

    READ = "read"  # see the grid, and one's own jobs
    SUBMIT = "submit"  # submit jobs, cancel one's own
    PRIORITY = "priority"  # give one's own jobs high priority
    OPERATE = "operate"  # see and cancel the jobs of all users; drain, resume and probe sites; change files


class Page(Answer, Generic[Item], frozen=True, kw_only=True):
    """One page of a long list. ``next`` is the cursor for the following page, None on the last one."""

    items: list[Item]
    next: str | None = None


class ProblemAt(Answer, frozen=True, kw_only=True):
    """One defect of a description, with its place and its cure."""

    line: int | None = None
    column: int | None = None
    message: str
    cure: str = ""


class ErrorBody(Answer, frozen=True, kw_only=True):
    """Why a call failed. ``code`` is for programs; ``message`` names the thing, what is wrong with it and what to
    do."""

    code: str
    message: str
    problems: list[ProblemAt] = []


class ErrorAnswer(Answer, frozen=True, kw_only=True):
    """The body of every answer that is not a success."""

    error: ErrorBody
