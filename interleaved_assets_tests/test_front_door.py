"""The packages that users import from: their names are documented, and documents import from nowhere else."""

import ast
import importlib
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
LIBRARY = (REPOSITORY / "docs/library.md").read_text(encoding="utf-8")
PACKAGES = ("model", "io", "scoring", "selection", "export")
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")), *REPOSITORY.glob("*/README.md"))
ALLOWED = {f"interleaved_assets.{name}" for name in (*PACKAGES, "settings")}


def imports(source: str) -> dict[str, set[str]]:
    """Names by the module of the project that ``source`` imports them from; none for a module imported as a whole."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            found |= {alias.name: set() for alias in node.names}
    return {name: names for name, names in found.items() if name.partition(".")[0] == "interleaved_assets"}


def test_documents_import_from_the_front_door_alone() -> None:
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for module, names in imports(block).items():
                assert module in ALLOWED, f"{page.name} imports {module}"
                found.setdefault(module, set()).update(names)
    assert {"filter_batch", "register_filter", "drop_rows"} <= found["interleaved_assets.selection"]
    for module, names in found.items():
        public = importlib.import_module(module)
        assert names - {"clip"} <= {*getattr(public, "__all__", vars(public))}


@pytest.mark.parametrize("package", [*PACKAGES, "scoring.clip"])
def test_every_public_name_is_there_and_documented(package: str) -> None:
    module = importlib.import_module(f"interleaved_assets.{package}")
    assert module.__all__ == sorted(module.__all__)
    (section,) = re.findall(
        rf"^## `interleaved_assets\.{package.partition('.')[0]}`:.*?(?=^## |\Z)", LIBRARY, re.MULTILINE | re.DOTALL
    )
    documented = set(re.findall(r"`(\w+)`", section))
    assert set(module.__all__) - documented == set()
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_documented_name_is_public(package: str) -> None:
    (section,) = re.findall(rf"^## `interleaved_assets\.{package}`:.*?(?=^## |\Z)", LIBRARY, re.MULTILINE | re.DOTALL)
    names = {
        name for line in re.findall(r"^\| (.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    }
    assert names - {*importlib.import_module(f"interleaved_assets.{package}").__all__} == set()


@pytest.mark.parametrize("package", [*PACKAGES, "scoring.clip"])
def test_a_name_comes_from_the_module_that_types_know_it_from(package: str) -> None:
    module = importlib.import_module(f"interleaved_assets.{package}")
    assert module.__file__ is not None
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    offered = {}
    for node in stub.body:
        assert isinstance(node, ast.ImportFrom)
        assert [alias.asname for alias in node.names] == [alias.name for alias in node.names]  # for types it is public
        offered |= {alias.name: f"interleaved_assets.{package}.{node.module}" for alias in node.names}
    assert offered.keys() == {*module.__all__}
    for name, home in offered.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
        assert name in dir(module)
    # the import of a module puts it in the place of a name like its own
    assert {*module.__all__} & {file.stem for file in Path(module.__file__).parent.iterdir()} == set()
    with pytest.raises(AttributeError, match=rf"No interleaved_assets\.{package} attribute missing"):
        module.missing  # noqa: B018
