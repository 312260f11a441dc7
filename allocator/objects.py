"""Types of what maps names to values: an object of JSON, a row of a table, settings."""

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]
"""An object that is only read."""
Json = dict[str, Any]
"""An object that is built here, or may be changed."""
