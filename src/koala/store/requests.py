"""The stored form of requests: each different request once, and each of its long texts once for all requests.

The components of a job often run the same application and read the same files, so a stored request has each different
application and list of files once, and its components refer to them by number. The stored size therefore grows with
the size of the submission, and not with the number of components.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koala.model.request import Application, Component, InputFile, Request
from koala.store.columns import ExactJson

# A text of this length or more has a row of its own.
TEXT_CHARACTERS_MIN = 256
# Marks the place of such a text: an object with its number in the list of texts. No field of a request has this name.
TEXT_NUMBER = "$text"

_FIELDS = msgspec.structs.fields(Request)
_COMPONENT_FIELDS = msgspec.structs.fields(Component)


class KeptRequest(NamedTuple):
    """The stored form of a request. ``key`` is the SHA-256 of ``body``; ``texts`` are its long texts by their
    SHA-256."""

    key: str
    body: str
    texts: dict[str, str]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``body``: the keys of the long texts, the different applications and lists of input files, and
    the rest, in which components have numbers in place of both."""

    texts: list[str]
    applications: list[Any]
    inputs: list[Any]
    request: dict[str, Any]


_JSON: ExactJson[RequestBody] = ExactJson(RequestBody)


def keep(request: Request) -> KeptRequest:
    """Return the stored form of a request; equal requests have equal forms."""
    body, texts = _Keeping().parts(request)
    text = _JSON.encode(body)
    return KeptRequest(hashlib.sha256(text.encode()).hexdigest(), text, texts)


def is_utf8(request: Request) -> bool:
    """Return True if UTF-8 can represent every text in the request; each different text is examined once."""
    body, texts = _Keeping().parts(request)
    try:
        msgspec.json.encode((body, texts))
    except UnicodeEncodeError:
        return False
    return True


def decode_body(body: str) -> RequestBody:
    """Return the content of a row. Raises ``ValueError`` if it is not a stored request."""
    return _JSON.decode(body)


def restored(body: RequestBody, texts: Mapping[str, str]) -> Request:
    """Return the request of a stored form. Raises ``ValueError`` if it makes no sense, or a text is missing."""
    try:
        found = [texts[key] for key in body.texts]
        applications = [msgspec.convert(_with_texts(each, found), Application) for each in body.applications]
        inputs = [msgspec.convert(_with_texts(each, found), tuple[InputFile, ...]) for each in body.inputs]
        components = []
        for fields in body.request["components"]:
            whole = dict(fields)
            if "application" in fields:
                whole["application"] = applications[fields["application"]]
            if "input_files" in fields:
                whole["input_files"] = inputs[fields["input_files"]]
            components.append(msgspec.convert(whole, Component))
        return msgspec.convert(body.request | {"components": components}, Request)
    except (LookupError, TypeError) as error:
        raise ValueError(f"a request refers to a missing part: {error!r}") from None


class _Keeping:
    """Collects the different parts of one request."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._applications = _Numbered()
        self._inputs = _Numbered()

    def parts(self, request: Request) -> tuple[RequestBody, dict[str, str]]:
        """Return the body, and the long texts by key."""
        components = []
        for component in request.components:
            fields = _given(component, _COMPONENT_FIELDS)
            if "application" in fields:
                fields["application"] = self._applications.number(component.application)
            if "input_files" in fields:
                fields["input_files"] = self._inputs.number(component.input_files)
            components.append(fields)
        applications = [self._without_texts(msgspec.to_builtins(each)) for each in self._applications.values]
        inputs = [self._without_texts(msgspec.to_builtins(each)) for each in self._inputs.values]
        texts = {text_key(text): text for text in self._texts}
        body = RequestBody(
            texts=list(texts),
            applications=applications,
            inputs=inputs,
            request=msgspec.to_builtins(_given(request, _FIELDS)) | {"components": components},
        )
        return body, texts

    def _without_texts(self, value: Any) -> Any:
        if isinstance(value, str):
            if len(value) < TEXT_CHARACTERS_MIN:
                return value
            return {TEXT_NUMBER: self._texts.setdefault(value, len(self._texts))}
        if isinstance(value, list | tuple):
            return [self._without_texts(each) for each in value]
        if isinstance(value, dict):
            return {name: self._without_texts(each) for name, each in value.items()}
        return value


class _Numbered:
    """Different values in the order in which they came. Most are the same object, which its identity finds."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._by_value: dict[Any, int] = {}
        self._by_identity: dict[int, int] = {}

    def number(self, value: Any) -> int:
        found = self._by_identity.get(id(value))
        if found is None:
            found = self._by_identity[id(value)] = self._by_value.setdefault(value, len(self.values))
            if found == len(self.values):
                self.values.append(value)
        return found


def text_key(text: str) -> str:
    """Return the key of a long text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _given(value: msgspec.Struct, fields: tuple[msgspec.structs.FieldInfo, ...]) -> dict[str, Any]:
    """Return the fields that differ from their defaults, without the components, which the caller adds."""
    found = {field.name: getattr(value, field.name) for field in fields if field.name != "components"}
    usual = {field.name: field.default for field in fields}
    return {name: given for name, given in found.items() if given != usual[name]}


def _with_texts(value: Any, texts: list[str]) -> Any:
    if isinstance(value, list):
        return [_with_texts(each, texts) for each in value]
    if isinstance(value, dict):
        if TEXT_NUMBER in value:
            return texts[value[TEXT_NUMBER]]
        return {name: _with_texts(each, texts) for name, each in value.items()}
    return value
