"""Write docs/reference/http.md from the OpenAPI document of the service.

    python scripts/generators/generate_http_docs.py

A test holds the page against the code.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from allocator.server.api import build_document

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md"
HEAD = """# HTTP API

The calls of [the service](../service.md). `scripts/generators/generate_http_docs.py` writes this
page from the OpenAPI document, which a running service shows at `/api/v1/openapi.json`. Every call
needs a token. Every answer has `schema_version`; later versions may add fields. Errors are
`{"schema_version": 1, "error": {"code", "message", "faults"}}`.
"""


def write_page() -> str:
    """Return the text of the page."""
    document = build_document()
    errors = document["paths"]["/api/v1/counts"]["get"]["responses"]
    lines = [HEAD, "| status | |", "|---|---|"]
    lines += [f"| {s} | {r['description']} |" for s, r in sorted(errors.items()) if s != "200"]
    tags: dict[str, list[str]] = {}
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            tags.setdefault(call["tags"][-1], []).extend(write_call(method, path, call))
    for tag, text in tags.items():
        lines += ["", f"## {tag.capitalize()}", *text]
    lines += ["", "## Forms"]
    for name, schema in document["components"]["schemas"].items():
        lines += write_schema(name, schema)
    return "\n".join(lines) + "\n"


def write_call(method: str, path: str, call: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one call."""
    yield from ("", f"### {method.upper()} {path}", "", call["description"])
    parameters = call.get("parameters", ())
    if parameters:
        yield from ("", "| parameter | in | type | |", "|---|---|---|---|")
    for one in parameters:
        schema = one["schema"]
        words = one.get("description", "")
        if "default" in schema and schema["default"] != "":
            words += f" (default: {schema['default']})"
        yield f"| `{one['name']}` | {one['in']} | {describe(schema)} | {words.strip()} |"
    body = call.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        yield from ("", f"Body: {describe(body['schema'])}.")
    answers = [
        f"{status}: {describe(content['schema'])}"
        for status, one in call["responses"].items()
        if status.startswith("2")
        for content in one.get("content", {}).values()
    ]
    yield from ("", f"Answer: {', '.join(answers)}.")


def write_schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one form."""
    yield from ("", f"### {name}", "", schema.get("description", "").replace("\n", " "))
    required = schema.get("required", ())
    yield from ("", "| field | type | |", "|---|---|---|")
    for field, one in schema.get("properties", {}).items():
        words = one.get("description", "").replace("|", "\\|")
        must = (
            " (required)"
            if field in required and schema.get("additionalProperties") is False
            else ""
        )
        yield f"| `{field}` | {describe(one)} | {words}{must} |"
    for example in schema.get("examples", ()):
        yield from ("", "```json", json.dumps(example), "```")


def describe(schema: Mapping[str, Any]) -> str:
    """Return the type of a value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(describe(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array" and "items" in schema:
        return f"list of {describe(schema['items'])}"
    if kind == "array":
        return "pair of " + " and ".join(describe(one) for one in schema["prefixItems"])
    values = schema.get("additionalProperties")
    if kind == "object" and isinstance(values, dict):
        return f"object of {describe(values)}"
    return str(kind)


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
