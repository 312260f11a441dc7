"""JSON values as YAML that people read; strings are quoted unless nothing could misread them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# begins with a letter, and is no word that some version of YAML takes for another value
_PLAIN = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[A-Za-z][A-Za-z0-9_./-]*", re.I)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value)
    return json.dumps(value)


def yaml_text(value: Any, indent: str = "") -> str:
    """Return a value of JSON as a block of YAML, each line with an end.

    Examples
    --------
    >>> print(yaml_text({"spec": {"suspend": True, "args": ["a", "no"]}}), end="")
    spec:
      suspend: true
      args:
        - a
        - "no"
    """
    if isinstance(value, Mapping) and value:
        return "".join(
            _entry(f"{indent}{_scalar(key)}:", one, indent) for key, one in value.items()
        )
    if isinstance(value, list) and value:
        return "".join(_item(one, indent) for one in value)
    return f"{indent}{_scalar(value)}\n"


def _entry(start: str, value: Any, indent: str) -> str:
    if isinstance(value, Mapping | list) and value:
        return f"{start}\n{yaml_text(value, indent + '  ')}"
    return f"{start} {_scalar(value)}\n"


def _item(value: Any, indent: str) -> str:
    """Return an item of a list; the first line of an object stands behind the hyphen."""
    block = yaml_text(value, indent + "  ")
    return f"{indent}- {block[len(indent) + 2 :]}"
