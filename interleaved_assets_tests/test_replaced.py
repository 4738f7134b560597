"""What tests put in the place of a part of the package goes through ``stand_in``, and so is found in one search."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = "interleaved_assets."
REPLACING = {"setattr", "delattr", "setitem", "delitem"}


def replaced_in(path: Path) -> Iterator[str]:
    """The lines that replace something of the package, with ``monkeypatch`` or a patch like it."""
    text = path.read_text()
    if not any(f"{name}(" in text for name in REPLACING):
        return
    tree = ast.parse(text)
    of_package = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        target = ast.unparse(node.args[0])
        root = target.strip("f'\"").partition(".")[0]
        if node.func.attr in REPLACING and (root in of_package or target.strip("f'\"").startswith(PACKAGE)):
            yield f"{path.name}:{node.lineno}"


def test_parts_of_the_package_are_replaced_by_one_helper() -> None:
    found = [line for path in sorted(TESTS.rglob("*.py")) for line in replaced_in(path)]
    assert found == []


def test_the_search_finds_them(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from interleaved_assets.io import parquet as module\n"
        "patch.setattr(module, 'x', 1)\n"
        "patch.setattr('interleaved_assets.io.x', 1)\n"
        "patch.setattr(other, 'x', 1)\n"
    )
    assert list(replaced_in(tmp_path / "a.py")) == ["a.py:2", "a.py:3"]
