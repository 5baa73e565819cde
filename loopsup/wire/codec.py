"""Frozen dataclasses to JSON values and back, driven by their type hints.

Rules:

- A dataclass is an object with its field names as keys. Where the hint is a union of several dataclasses,
  the object starts with `"type"`: the class name in snake_case (`HandoverAccepted` -> `handover_accepted`).
- A `StrEnum` is its value, `tuple[X, ...]` an array, `X | None` the value or null. An `int` is an integer
  within `MAX_INT`; true, 1.0 and NaN are not integers. An `object` field is passed as it is.
- Decoding is strict in types and open in keys: an unknown key is ignored (a later minor version may have
  put it there), a missing key takes the field's default, and without a default it is an error.

Errors are `ValueError`s that name the path (`loop.phase.due.wall: …`).
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, overload

MAX_INT = 2**53  # every JSON reader can hold these exactly

T = TypeVar("T")


def encode(value: object, kind: Any = None) -> Any:
    """The JSON value of `value`, seen as `kind` (a type or union; by default its own class)."""
    return _encode(value, type(value) if kind is None else kind)


@overload
def decode(kind: type[T], obj: object, path: str = ...) -> T: ...
@overload
def decode(kind: Any, obj: object, path: str = ...) -> Any: ...
def decode(kind: Any, obj: object, path: str = "") -> Any:
    """The value of type `kind` that `obj` stands for; ValueError names what is wrong and where."""
    return _decode(kind, obj, path)


def tag(cls: type) -> str:
    """The name of a class in a union."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: Any
    required: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Union:
    """The members of a union: classes by tag (`tagged` where there are several), what else, and None."""

    classes: dict[str, type]
    others: tuple[Any, ...]
    optional: bool

    @property
    def tagged(self) -> bool:
        return len(self.classes) > 1


@cache
def _fields(cls: type) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(
        _Field(
            field.name,
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
    )


@cache
def _union(kind: Any) -> _Union | None:
    if typing.get_origin(kind) not in (types.UnionType, typing.Union):
        return None
    members = typing.get_args(kind)
    classes: dict[str, type] = {
        tag(member): member for member in members if isinstance(member, type) and dataclasses.is_dataclass(member)
    }
    if len(classes) > 1 and any(field.name == "type" for cls in classes.values() for field in _fields(cls)):
        raise TypeError(f"{kind} has a member with a field named 'type', which is the tag's key")
    others = tuple(member for member in members if member not in classes.values() and member is not types.NoneType)
    return _Union(classes, others, types.NoneType in members)


@cache
def _element(kind: Any) -> Any:
    """The X of `tuple[X, ...]`, else None."""
    args = typing.get_args(kind)
    return args[0] if typing.get_origin(kind) is tuple and len(args) == 2 and args[1] is Ellipsis else None


def _encode(value: Any, kind: Any) -> Any:
    if kind is object:
        return _plain(value)
    union = _union(kind)
    if union is not None:
        cls = type(value)
        if union.tagged and cls in union.classes.values():
            return {"type": tag(cls), **_encode_object(value)}
        return None if value is None else _encode(value, cls)
    if dataclasses.is_dataclass(kind):
        return _encode_object(value)
    element = _element(kind)
    if element is not None:
        return [_encode(item, element) for item in value]
    if isinstance(value, tuple):
        return [_encode(item, type(item)) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def _encode_object(value: Any) -> dict[str, Any]:
    cls: type = type(value)
    return {field.name: _encode(getattr(value, field.name), field.kind) for field in _fields(cls)}


def _plain(value: object) -> object:
    """What a model sent, unless strict JSON has no form for it (NaN, endless nesting): then its type, told."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return {"unrepresentable": type(value).__name__}
    return value


def _decode(kind: Any, obj: Any, path: str) -> Any:
    if kind is object:
        return obj
    union = _union(kind)
    if union is not None:
        return _decode_union(union, obj, path)
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return _decode_object(kind, obj, path)
    element = _element(kind)
    if element is not None:
        if not isinstance(obj, list):
            raise _wrong(path, "an array", obj)
        return tuple(_decode(element, item, f"{path}[{index}]") for index, item in enumerate(obj))
    return _decode_scalar(kind, obj, path)


def _decode_union(union: _Union, obj: Any, path: str) -> Any:
    if obj is None and union.optional:
        return None
    if union.classes and isinstance(obj, dict):
        if not union.tagged:
            return _decode_object(next(iter(union.classes.values())), obj, path)
        name = obj.get("type")
        if not isinstance(name, str) or name not in union.classes:
            raise ValueError(f"{_at(path, 'type')}: {_shown(name)} is none of {', '.join(union.classes)}")
        return _decode_object(union.classes[name], obj, path)
    if len(union.others) == 1 and not union.classes:
        return _decode(union.others[0], obj, path)
    raise _wrong(path, "an object", obj)


def _decode_object(cls: type, obj: Any, path: str) -> Any:
    if not isinstance(obj, dict):
        raise _wrong(path, "an object", obj)
    values = {}
    for field in _fields(cls):
        if field.name in obj:
            values[field.name] = _decode(field.kind, obj[field.name], _at(path, field.name))
        elif field.required:
            raise ValueError(f"{_at(path, field.name)}: missing")
    return cls(**values)


def _decode_scalar(kind: Any, obj: Any, path: str) -> Any:
    if kind is bool:
        if not isinstance(obj, bool):
            raise _wrong(path, "true or false", obj)
    elif kind is int:
        if type(obj) is not int:
            raise _wrong(path, "an integer", obj)
        if abs(obj) > MAX_INT:
            raise ValueError(f"{path or 'value'}: the integer is out of range")
    elif kind is str:
        if not isinstance(obj, str):
            raise _wrong(path, "a string", obj)
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        if not isinstance(obj, str) or obj not in [member.value for member in kind]:
            raise ValueError(f"{path or 'value'}: {_shown(obj)} is none of {', '.join(kind)}")
        return kind(obj)
    else:
        raise TypeError(f"{path or 'value'}: the codec has no rule for {kind!r}")
    return obj


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _wrong(path: str, wanted: str, obj: object) -> ValueError:
    return ValueError(f"{path or 'value'}: expected {wanted}, found {_shown(obj)}")


def _shown(obj: object) -> str:
    """A short, harmless name of a bad value for an error text."""
    if isinstance(obj, dict | list):
        return "an object" if isinstance(obj, dict) else "an array"
    if obj is None or isinstance(obj, bool):
        return {None: "null", True: "true", False: "false"}[obj]
    if isinstance(obj, str):
        return ascii(obj if len(obj) <= 40 else obj[:40] + "...")
    return "a huge number" if isinstance(obj, int) and abs(obj) > MAX_INT else repr(obj)
