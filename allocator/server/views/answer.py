"""What all answers of the service have: views are answers of the API, and pages show them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from allocator.server.errors import SCHEMA_VERSION

T = TypeVar("T")


class Form(BaseModel):
    """A form whose fields are described by the words below them."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Answer(Form):
    """An answer; later versions may add fields."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = SCHEMA_VERSION
    """version of the form of this answer"""


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list: `total` entries match, `rows` are those of the page."""

    rows: Sequence[T]
    total: int
    page: int
    pages: int


def find_page(page: int, size: int, total: int) -> tuple[int, int]:
    """Return the number of a page, and that of the last; pages beyond the last are the last."""
    pages = max(1, -(-total // size))
    return min(page, pages), pages
