"""Hypothesis strategies for any type the codec knows, without touching the global registry."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from loopsup.wire.codec import MAX_INT

TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)  # lone surrogates included
JSON = st.recursive(st.none() | st.booleans() | TEXT, lambda inner: st.dictionaries(TEXT, inner, max_size=3))


def values(kind: Any, low: int = -MAX_INT, high: int = MAX_INT) -> st.SearchStrategy[Any]:
    """Values of `kind` with integers from `low` to `high`."""
    if kind is object:
        return JSON
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return st.one_of([values(member, low, high) for member in typing.get_args(kind)])
    if typing.get_origin(kind) is tuple:
        return st.lists(values(typing.get_args(kind)[0], low, high), max_size=3).map(tuple)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        assert callable(kind)
        return st.builds(kind, **{name: values(hint, low, high) for name, hint in hints.items()})
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return st.sampled_from(list(kind))
    simple = {int: st.integers(low, high), str: TEXT, bool: st.booleans(), types.NoneType: st.none()}
    return simple[kind]
