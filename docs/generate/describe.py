"""Types to JSON Schema, and what a class says about its fields. No word of any topic here."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Schema = dict[str, Any]
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def docs_of(cls: type) -> dict[str, str]:
    """field -> the text below it in the class body, as one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    found = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[field.target.id] = " ".join(below.value.value.split())
    return found


def schema_of(kind: Any, texts: Mapping[str, str]) -> Schema:
    """The schema of a type. `texts`: Class.field -> description, where the class has none of its own."""
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if dataclasses.is_dataclass(kind):
        return _object(kind, texts)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        found = [schema_of(one, texts) for one in inner]
        if all(set(one) == {"type"} for one in found):
            return {"type": [one["type"] for one in found]}
        return {"anyOf": found}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1], texts)}
    if origin is tuple and len(set(inner)) == 1:
        items = schema_of(inner[0], texts)
        return {"type": "array", "items": items, "minItems": len(inner), "maxItems": len(inner)}
    raise TypeError(f"no schema for {kind}")


def _object(cls: type, texts: Mapping[str, str]) -> Schema:
    hints, own = get_type_hints(cls), docs_of(cls)
    properties = {}
    for field in dataclasses.fields(cls):
        text = own.get(field.name) or texts[f"{cls.__name__}.{field.name}"]
        properties[field.name] = {
            "description": re.sub(r"\bNone\b", "null", text),
            **schema_of(hints[field.name], texts),
        }
    return {"type": "object", "properties": properties, "required": list(properties)}
