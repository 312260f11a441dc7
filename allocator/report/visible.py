"""Show the characters that a reader cannot see but that change what is seen.

A name may hold marks of direction, such as U+202E, which turns round what follows it. The style
sheets isolate every element, so letters that are written from right to left move no neighbour.
"""

import re

_HIDDEN = re.compile("[\0-\b\v-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def show_hidden(text: str) -> str:
    r"""Return text or HTML with control characters and marks of direction as text: \u202e."""
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
