"""The house as docs/design.md draws it, and every file and module that a document names in backticks."""

from __future__ import annotations

import importlib
import pathlib
import re
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("koordlite/*/README.md")])
TOPS = "koordlite", "descheduler"
FOLDERS = (*TOPS, "tests", "docs", "configs", "manifests", "scripts")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(rf"(?:(?:{'|'.join(FOLDERS)})/)[\w./-]*|[\w-]+(?:/[\w.-]+)*\.(?:py|md)")
_MODULE = re.compile(rf"(?:{'|'.join(TOPS)})(?:\.[a-zA-Z_]\w*)+")
_EXAMPLES = {
    *("koordlite/strategies/count_pods.py", "descheduler/plugins/old_pods.py"),
    *("koordlite/changes/KIND.py", "koordlite/apply/kinds/KIND.py"),
    "descheduler/v1alpha2",
}
"""Files that the reader of docs/extend.md writes, and an API version."""
_ROW = re.compile(r"^\| (`[^|]+`) \| .+ \| (\d+\.\d) \|$", re.MULTILINE)


def code(page: pathlib.Path) -> list[str]:
    """What a page has in backticks, outside fenced blocks."""
    return _CODE.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))


def is_there(page: pathlib.Path, path: str) -> bool:
    """Whether a path exists, seen from the repository, the page, or a program's folder."""
    return any((base / path).exists() for base in (ROOT, page.parent, *(ROOT / top for top in TOPS)))


def is_module(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:count])
        if path.is_dir() or path.with_suffix(".py").exists():
            value: object = importlib.import_module(".".join(parts[:count]))
            for part in parts[count:]:
                if not hasattr(value, part):
                    return False
                value = getattr(value, part)
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_modules_that_a_page_names_are_there(page: pathlib.Path) -> None:
    words = [word for word in (text.split("::")[0].rstrip("*") for text in code(page)) if word not in _EXAMPLES]
    absent = [word for word in words if _PATH.fullmatch(word) and not is_there(page, word)]
    absent += [word for word in words if _MODULE.fullmatch(word) and not word.endswith(".yaml") and not is_module(word)]
    assert absent == []


def test_a_name_of_nothing_is_seen() -> None:
    assert _PATH.fullmatch("host/journal.py") and not is_there(ROOT / "README.md", "host/journal.py")
    assert is_module("koordlite.plan.order") and not is_module("koordlite.plan.orders")


def rows(top: str) -> list[tuple[list[str], float]]:
    """Rooms of each row of one program's table, in its order, and their budget in thousands of lines."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = text.partition(f"| room of `{top}/` |")[2].partition("\n\n")[0]
    return [
        ([name.rstrip("/") for name in _CODE.findall(cell) if name.count("/") == name.endswith("/")], float(budget))
        for cell, budget in _ROW.findall(table)
    ]


def rooms(top: str) -> list[str]:
    """Rooms of one program in the order of the table."""
    return [name.removesuffix(".py") for names, _ in rows(top) for name in names]


@pytest.mark.parametrize(
    ("names", "budget"),
    [
        pytest.param([f"{top}/{name}" for name in names], b, id=" ".join(names))
        for top in TOPS
        for names, b in rows(top)
    ],
)
def test_a_room_keeps_its_budget(names: list[str], budget: float) -> None:
    files = [path for name in names for path in (*(ROOT / name).rglob("*.py"), ROOT / name) if path.suffix == ".py"]
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in files)
    assert 0 < lines < 1000 * budget + 50, "make it simpler, or raise its budget in docs/design.md and say why"


@pytest.mark.parametrize("top", TOPS)
def test_the_house_has_every_room_in_the_order_of_its_layers(top: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == [top])
    layer = {room.strip(): place for place, names in enumerate(layers) for room in re.split("[|:]", names)}
    assert sorted(rooms(top)) == sorted(layer)
    assert [layer[room] for room in rooms(top)] == sorted(layer.values())
