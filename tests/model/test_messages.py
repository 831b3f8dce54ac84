"""Every event, command and fact turns into JSON and back, told apart by its tag."""

from __future__ import annotations

import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model import facts, messages
from koala.model.checkpoint import CheckpointSource
from koala.model.dependency import Condition, Dependency
from koala.model.errors import Fault
from koala.model.facts import AnyFact, Fact, JobEnded, LinkBelief, StoryFact, Turn, TurnEntry
from koala.model.messages import (
    AnyCommand,
    AnyEvent,
    Command,
    EndedJob,
    Event,
    InputSource,
    JobOutcome,
    JobSubmitted,
    LastingCommand,
    Outcome,
)
from koala.model.nodes import NamedNode, NodeClass, NodeSize
from koala.model.outputs import JobOutput, MadeOutput
from koala.model.request import Application, Component, Flexibility, InputFile, InputMode, JobType, Priority, Request
from koala.model.task_graph import SpawnedTasks

EVENTS: tuple[type[msgspec.Struct], ...] = typing.get_args(AnyEvent)
COMMANDS: tuple[type[msgspec.Struct], ...] = typing.get_args(AnyCommand)
FACTS: tuple[type[msgspec.Struct], ...] = typing.get_args(AnyFact)

texts = st.text(max_size=10)
times = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 10**9)
made_outputs = st.builds(
    MadeOutput,
    path=texts,
    size_bytes=counts,
    checksum=texts,
    directory=st.booleans(),
    also_at=st.lists(texts, max_size=2).map(tuple),
)
OF_TYPE: dict[typing.Any, st.SearchStrategy[typing.Any]] = {
    float: times,
    int: counts,
    str: texts,
    bool: st.booleans(),
    Outcome: st.sampled_from(Outcome),
    JobOutcome: st.sampled_from(JobOutcome),
    Fault | None: st.none() | st.sampled_from(Fault),
    int | None: st.none() | counts,
    float | None: st.none() | times,
    str | None: st.none() | texts,
    tuple[str, ...]: st.lists(texts, max_size=3).map(tuple),
    tuple[int, ...]: st.lists(counts, max_size=3).map(tuple),
    Condition: st.sampled_from(Condition),
    tuple[LinkBelief, ...]: st.lists(
        st.builds(LinkBelief, source=texts, target=texts, bytes_per_s=times, rates=counts, latency_s=times),
        max_size=2,
    ).map(tuple),
    MadeOutput: made_outputs,
    tuple[MadeOutput, ...]: st.lists(made_outputs, max_size=2).map(tuple),
    tuple[JobOutput, ...]: st.lists(
        st.builds(JobOutput, path=texts, to=st.none() | texts, size_bytes=counts), max_size=2
    ).map(tuple),
    tuple[tuple[CheckpointSource, ...], ...]: st.lists(
        st.lists(st.builds(CheckpointSource, site=texts, token=texts), max_size=2).map(tuple), max_size=2
    ).map(tuple),
    tuple[NamedNode, ...]: st.lists(
        st.builds(NamedNode, texts, st.builds(NodeSize, counts), st.lists(texts, max_size=2).map(tuple)), max_size=2
    ).map(tuple),
    tuple[NodeClass, ...]: st.lists(
        st.builds(
            NodeClass,
            counts,
            st.builds(NodeSize, counts, counts, st.lists(st.tuples(texts, counts), max_size=2).map(tuple)),
            st.builds(NodeSize, counts),
            st.lists(texts, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    tuple[int, int] | None: st.none() | st.tuples(counts, counts),
    tuple[tuple[InputSource, ...], ...]: st.lists(
        st.lists(
            st.builds(
                InputSource,
                file=texts,
                transfer=st.none() | texts,
                chunk=st.none() | st.tuples(counts, counts),
            ),
            max_size=2,
        ).map(tuple),
        max_size=2,
    ).map(tuple),
    Priority | None: st.none() | st.sampled_from(Priority),
    tuple[EndedJob, ...]: st.lists(
        st.builds(EndedJob, job=counts, outcome=st.none() | st.sampled_from(JobOutcome), started=st.booleans()),
        max_size=2,
    ).map(tuple),
    tuple[Dependency, ...]: st.lists(
        st.builds(Dependency, job=counts, condition=st.sampled_from(Condition)), max_size=2
    ).map(tuple),
    tuple[tuple[str, int], ...]: st.lists(st.tuples(texts, counts), max_size=3).map(tuple),
    tuple[tuple[float, int], ...]: st.lists(st.tuples(times, counts), max_size=3).map(tuple),
    tuple[tuple[int, float, float], ...]: st.lists(st.tuples(counts, times, times), max_size=3).map(tuple),
    SpawnedTasks: st.dictionaries(texts.filter(bool), st.floats(0.1, 10.0), min_size=1, max_size=3).map(
        lambda rcr: SpawnedTasks.of(rcr, [(name, "partner", 1.0) for name in rcr])
    ),
    Request: st.builds(
        Request,
        components=st.lists(
            st.builds(
                Component,
                processors=st.integers(1, 100),
                site=st.none() | texts,
                input_files=st.lists(
                    st.builds(InputFile, name=texts, mode=st.sampled_from(InputMode), path=st.none() | texts),
                    max_size=2,
                    unique_by=lambda file: file.name,
                ).map(tuple),
                application=st.builds(
                    Application,
                    executable=texts,
                    arguments=st.lists(texts, max_size=2).map(tuple),
                    environment=st.lists(st.tuples(texts, texts), max_size=2, unique_by=lambda pair: pair[0]).map(
                        tuple
                    ),
                ),
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
        name=texts,
        priority=st.sampled_from(Priority),
        job_type=st.sampled_from(JobType),
        policy=st.none() | texts,
        walltime_s=st.none() | st.floats(0.1, 1e6),
        restarts_max=st.none() | counts,
    ),
}


def drawn(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    """Any message of this kind."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: OF_TYPE[hints[name]] for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: str(kind.__name__))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_event_survives_json(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    event = data.draw(drawn(kind))
    assert msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent) == event


@pytest.mark.parametrize("kind", [*COMMANDS, *FACTS], ids=lambda kind: str(kind.__name__))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_command_and_fact_survives_json(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    entry = data.draw(drawn(kind))
    assert msgspec.json.decode(msgspec.json.encode(entry), type=TurnEntry) == entry


def test_the_unions_name_every_message_that_the_module_defines() -> None:
    defined = [value for value in vars(messages).values() if isinstance(value, type)]
    assert {kind for kind in defined if issubclass(kind, Event)} - {Event, messages.Wish} == set(EVENTS)
    assert {kind for kind in defined if issubclass(kind, Command)} - {Command, LastingCommand} == set(COMMANDS)
    defined = [value for value in vars(facts).values() if isinstance(value, type)]
    assert {kind for kind in defined if issubclass(kind, Fact)} - {Fact, StoryFact} == set(FACTS)


def test_a_turn_tells_what_must_be_performed_from_what_has_happened() -> None:
    placed, asked = facts.JobPlaced(job=1, places=(("a", 4),)), messages.AskSite(site="a", tokens=("1.1",))
    ended = facts.JobRequeued(job=1, reason="it failed")
    turn = Turn(entries=[placed, asked, ended])
    assert turn.commands == [asked]
    assert turn.facts == [placed, ended]


def test_a_message_carries_its_name_in_json() -> None:
    for kinds, field in ((EVENTS, "event"), ((*COMMANDS, *FACTS), "command")):
        for kind in kinds:
            assert kind.__struct_config__.tag == kind.__name__
            assert kind.__struct_config__.tag_field == field


@pytest.mark.parametrize("kind", [*EVENTS, *COMMANDS, *FACTS], ids=lambda kind: str(kind.__name__))
def test_messages_are_frozen_and_built_by_keyword(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen
    if kind.__struct_fields__:
        with pytest.raises(TypeError):
            kind("positional")


def test_a_flexible_request_survives_json_inside_its_event() -> None:
    flexible = Flexibility(component_min=2, components_max=3, splits=((4, 6), (5, 5)))
    event = JobSubmitted(
        at=1.5, job=7, request=Request(components=(Component(processors=10),), flexible=flexible, policy="FCM")
    )
    assert msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent) == event


def test_a_record_without_places_and_times_survives_json() -> None:
    record = JobEnded(
        job=1,
        outcome=JobOutcome.CANCELLED,
        reason="",
        submitted_at=0.0,
        placed_at=None,
        started_at=None,
        ended_at=1.0,
        first_start_estimate=None,
        last_start_estimate=None,
        places=(),
        placement_tries=1,
        claiming_tries=0,
        runs=0,
        failures=0,
        preemptions=0,
    )
    assert msgspec.json.decode(msgspec.json.encode(record), type=AnyFact) == record
