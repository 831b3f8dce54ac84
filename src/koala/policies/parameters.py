"""Names with parameters behind them, such as ``B3(chunk=0.85)``: reading them, and their policies."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from koala.policies.errors import PolicyParameterError
from koala.policies.forms import Parameter, Policy

# A longer name is a mistake, and is not repeated in its error message.
LONGEST_NAME_CHARACTERS = 255
_SHOWN_CHARACTERS = 40


class PolicySpec(NamedTuple):
    """A name as written: the bare name, and each value with the name of its parameter if that was given."""

    bare: str
    values: tuple[tuple[str | None, str], ...]


def read_name(text: str) -> PolicySpec:
    """Return the pieces of a name. Raises PolicyParameterError if it is too long, or its
    parentheses are malformed."""
    if len(text) > LONGEST_NAME_CHARACTERS:
        begin = f"{text[:_SHOWN_CHARACTERS]}..."
        cure = f"write {LONGEST_NAME_CHARACTERS} or less"
        raise PolicyParameterError(begin, f"the name has {len(text)} characters", cure)
    bare, opened, inside = text.partition("(")
    bare = bare.strip()
    if not opened:
        return PolicySpec(bare, ())
    inside = inside.strip()
    if not inside.endswith(")"):
        raise PolicyParameterError(text, "nothing closes the parenthesis", f"write {bare}(name=value)")
    inside = inside[:-1].strip()
    if not inside:
        return PolicySpec(bare, ())
    values: list[tuple[str | None, str]] = []
    for piece in inside.split(","):
        name, equals, value = piece.partition("=")
        if not equals:
            name, value = "", name
        if not value.strip() or (equals and not name.strip()):
            raise PolicyParameterError(
                text, f"{piece.strip()!r} is no parameter with a value", f"write {bare}(name=value)"
            )
        values.append((name.strip().casefold() if equals else None, value.strip()))
    return PolicySpec(bare, tuple(values))


def with_parameters(policy: Policy, text: str, written: PolicySpec) -> Policy:
    """Return the policy with these values, under a name that has them all, in the order of its parameters.

    A value without a name is for the first parameter, the next for the second. Raises PolicyParameterError.
    """
    if not written.values:
        return policy
    if not policy.parameters or policy.module is None:
        raise PolicyParameterError(text, f"{policy.name} has no parameters", f"write {policy.name}")
    given: dict[str, str] = {}
    choice = policy.module
    for position, (_, value) in enumerate(written.values):
        parameter = _parameter(policy, text, written, position)
        if parameter.name in given:
            raise PolicyParameterError(text, f"{parameter.name} is given twice", "give it once")
        read = parameter.read(choice, value)
        if read is None:
            raise PolicyParameterError(
                text, f"{value!r} is no value for {parameter.name}", f"write {parameter.values}"
            )
        choice, given[parameter.name] = read
    if "order" in given and "objective" in given:
        raise PolicyParameterError(
            text, "an order and an objective are given", "keep one: an objective finds the best of all solutions"
        )
    said = ", ".join(f"{each.name}={given[each.name]}" for each in policy.parameters if each.name in given)
    return dataclasses.replace(policy, name=f"{policy.name}({said})", module=choice)


def _parameter(policy: Policy, text: str, written: PolicySpec, position: int) -> Parameter:
    """Return the parameter for the value at this position."""
    name = written.values[position][0]
    named_before = any(before is not None for before, _ in written.values[:position])
    names = ", ".join(each.name for each in policy.parameters)
    if name is None:
        if named_before:
            raise PolicyParameterError(
                text, "a value without a name stands behind one with a name", "name them all, or put it first"
            )
        if position >= len(policy.parameters):
            raise PolicyParameterError(text, "there are too many values", f"the parameters are: {names}")
        return policy.parameters[position]
    for parameter in policy.parameters:
        if parameter.name == name:
            return parameter
    raise PolicyParameterError(text, f"{policy.name} has no parameter {name!r}", f"the parameters are: {names}")
