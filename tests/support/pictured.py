"""What the pictures in docs/images show, as text: by it a test tells when one of them is stale.

`python tests/support/pictured.py TOP PLAN` writes docs/images/shown.json from what `koordlite top --once` and
`descheduler plan -o html` print. `make pictures` calls it.
"""

from __future__ import annotations

import html
import json
import pathlib
import re
import sys

SHOWN = pathlib.Path(__file__).parents[2] / "docs" / "images" / "shown.json"
_FOLD = 1200
"""Characters of the plan that the picture has."""


def top(text: str) -> list[str]:
    """Labels of the live view, without its figures."""
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[⠀-⣿]", "", text).splitlines()
    labels = (re.match(r"(?!Script)(resctrl|[A-Za-z][A-Za-z, ]*?)(?: {2,}| \(| \d)", line) for line in lines)
    table = [" ".join(line.split()[:7]) for line in lines if line.startswith("pod ")]
    # The line that begins with the node's name is the first one.
    legend = [
        name for line in lines if line.startswith("CPU ") for name in re.findall(r"[^\w\s] ([A-Za-z ]+) \d", line)
    ]
    return list(dict.fromkeys(label[1] for label in labels if label and label[1] != "pod")) + legend + table


def plan(page: str) -> str:
    """Text of the plan's page as far as the picture shows it."""
    body = re.sub(r"<(style|script|title)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())[:_FOLD]


if __name__ == "__main__":
    live, page = (pathlib.Path(name).read_text(encoding="utf-8") for name in sys.argv[1:3])
    SHOWN.write_text(json.dumps({"live.png": top(live), "plan.png": plan(page)}, indent=1, ensure_ascii=False) + "\n")
