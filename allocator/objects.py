"""Objects of JSON, and rows, records and settings, which are like them: values by name."""

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]
"""One that is read."""
Json = dict[str, Any]
"""One that is made."""
