"""Whatever text and numbers come from outside, the store gives back exactly them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koala.model.facts import JobRequeued
from koala.model.messages import ComponentEnded, FileChanged, Outcome, SiteSilent, Tick
from koala.model.request import Application, Component, Request
from koala.store import Batch, Store, StoreError
from koala.store.columns import ExactJson, escaped, unescaped
from koala.store.writes import BODY
from tests.support.store_samples import (
    REQUEST,
    component_row,
    entry,
    file_entry,
    job_row,
    submitted,
    tick,
    token_row,
    transfer_row,
)

# Also NUL and halves of surrogate pairs, which neither UTF-8 nor PostgreSQL's text can hold.
TEXTS = ["\0", "a\0b", "\ud800", "x\udc80y", "\udc80\ud800", "é漢😀", "'\"\\", "\r\n\t", "\ufffe\uffff", " ", "null"]
NUMBERS = [0.1 + 0.2, 1e-323, 1.7976931348623157e308, -0.0, 1_750_000_000.123_456_7, math.inf, -math.inf, 5e-324]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_kept_in_every_row(store: Store, text: str) -> None:
    request = Request(components=(Component(processors=1, application=Application(script=text)),), name=text)
    job = job_row(1, owner=text, name=text, reason=text, client_token=text, explanation={"x": [text]})
    component = component_row(text, site=text, reason=text)
    transfer = transfer_row(text, file=text, source=text, reason=text)
    submission = submitted(3, 1, request)
    silent = entry(1, SiteSilent(at=1.0, site=text, reason=text), site=text)
    requeued = entry(2, JobRequeued(job=1, reason=text), job=1)
    file = file_entry(text, text)
    store.record(
        Batch(
            entries=(silent, requeued, submission),
            jobs=(job,),
            components=(component,),
            transfers=(transfer,),
            files=(file,),
        )
    )
    store.add_token(token_row(text, user=text, note=text, secret_hash=text))
    assert store.job(1) == job
    assert store.request(1) == request
    assert store.jobs(owner=text) == [job]
    assert store.job_by_client_token(text, text) == job
    assert store.component(text) == component
    assert store.held_processors(text, 0.0, 99.0)
    assert store.transfers(1) == [transfer]
    assert store.file(text) == file
    assert store.files(prefix=text) == [file]
    assert store.journal(owner=text) == [silent, requeued, submission]
    assert store.token_by_hash(text) == token_row(text, user=text, note=text, secret_hash=text)


@pytest.mark.parametrize("number", NUMBERS)
def test_times_are_kept_to_the_last_bit(store: Store, number: float) -> None:
    job = job_row(1, submitted_at=number, since=number, started_at=number, explanation={"at": number})
    store.record(Batch(entries=(entry(1, Tick(at=number), at=number),), jobs=(job,)))
    assert store.job(1) == job
    assert store.journal() == [entry(1, Tick(at=number), at=number)]


def test_whole_numbers_of_64_bits_are_kept_in_rows_and_larger_ones_in_messages(store: Store) -> None:
    most = 2**63 - 1
    store.record(
        Batch(
            entries=(entry(most, FileChanged(at=1.0, file="f", size_bytes=10**40, replicas=())),),
            jobs=(job_row(most, exit_code=-most),),
            transfers=(transfer_row(size_bytes=most, chunk=(10**30, most), jobs=(most,)),),
        )
    )
    assert store.job(most) == job_row(most, exit_code=-most)
    assert store.transfers(most) == [transfer_row(size_bytes=most, chunk=(10**30, most), jobs=(most,))]
    assert store.journal(after=most - 1)[0].body == FileChanged(at=1.0, file="f", size_bytes=10**40, replicas=())


def test_a_number_that_no_row_can_hold_is_refused_and_nothing_of_its_batch_is_kept(store: Store) -> None:
    with pytest.raises(StoreError, match=r"64 bits|out of range"):
        store.record(Batch(entries=(tick(1),), jobs=(job_row(1, exit_code=2**63),)))
    store.record(Batch(entries=(tick(1),)))
    assert store.journal() == [tick(1)]
    assert store.jobs() == []


def test_a_request_at_its_limits_is_kept(store: Store) -> None:
    component = Component(processors=10_000_000, application=Application(script="€" * 21_000))
    request = Request(components=(component,) * 1_000)
    store.record(Batch(entries=(submitted(1, 1, request),), jobs=(job_row(1),)))
    assert store.request(1) == request


any_text = st.text(st.characters(), max_size=20)  # surrogates too
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=20,
)


@given(any_text | st.text("\\u0d8\0\ud83d\ude00"))
def test_text_comes_back_the_same_and_is_readable_where_it_can_be(text: str) -> None:
    kept = escaped(text)
    assert unescaped(kept) == text
    assert "\0" not in kept
    kept.encode()  # no halves of surrogate pairs
    assert kept == text or not set(text).isdisjoint({"\\", "\0", *map(chr, range(0xD800, 0xE000))})


@given(st.dictionaries(any_text, any_json))
def test_json_of_anything_comes_back_the_same(value: dict[str, Any]) -> None:
    form: ExactJson[dict[str, Any]] = ExactJson(dict[str, Any])
    assert form.decode(form.encode(value)) == value


@given(st.builds(ComponentEnded, at=st.floats(allow_nan=False), token=any_text, outcome=st.sampled_from(Outcome)))
def test_a_message_comes_back_the_same(event: ComponentEnded) -> None:
    data = BODY["event"].encode(event)
    assert "\0" not in data
    assert BODY["event"].decode(data) == event


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(names=st.lists(any_text.filter(bool), max_size=8, unique=True), prefix=any_text, after=any_text)
def test_files_are_ordered_by_their_names_as_they_are_kept_whatever_these_are(
    store: Store, names: list[str], prefix: str, after: str
) -> None:
    store.record(Batch(files=tuple(file_entry(file.name) for file in store.all_files())))
    store.record(Batch(files=tuple(file_entry(name, "delft") for name in names)))

    def key(name: str) -> bytes:
        return escaped(name).encode()

    expected = sorted((name for name in names if name.startswith(prefix) and key(name) > key(after)), key=key)
    assert [file.name for file in store.files(after=after, prefix=prefix, limit=99)] == expected


def test_the_request_of_the_samples_is_not_touched_by_its_way_through_json() -> None:
    form: ExactJson[Request] = ExactJson(Request)
    assert form.decode(form.encode(REQUEST)) == REQUEST
