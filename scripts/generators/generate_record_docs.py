"""Write allocator/domain/records.pyi: the records as type checkers and editors read them.

python scripts/generators/generate_record_docs.py
"""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from textwrap import indent

from allocator.domain.records import RECORDS

PAGE = Path(__file__).resolve().parents[2] / "allocator" / "domain" / "records.pyi"
HEAD = '''"""Written by scripts/generators/generate_record_docs.py."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

USER: str
RECORDS: Mapping[str, type[Record]]

class Record:
    def given(self) -> dict[str, Any]: ...
'''


def write_page() -> str:
    """Return the text of the file."""
    return HEAD + "".join(map(write_record, RECORDS.values()))


def write_record(kind: type) -> str:
    """Return a class with its words and its fields."""
    doc = indent(f'"""{kind.__doc__}\n"""', "    ", str.strip)
    return f"\n@dataclass(frozen=True)\nclass {kind.__name__}(Record):\n{doc}\n\n" + "".join(
        f"    {line}\n" for line in list_fields(kind)
    )


def list_fields(kind: type) -> Iterator[str]:
    """Yield the lines of the fields; those that are given by name only come last."""
    for by_name in (False, True):
        yield from ["_: KW_ONLY"] * by_name
        for field in fields(kind):
            if field.kw_only is by_name:
                default = " = ..." * (field.default is not MISSING)
                yield f"{field.name}: {field.type}{default}"


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
