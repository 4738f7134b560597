"""What imports what: one direction between and inside folders, no cycles, the library free of Dagster and torch."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "interleaved_assets"

# Of each folder its modules and sub-folders, each of which imports from those before it alone. "*" stands for all that
# are not named; these may import each other.
ORDER = {
    ".": (
        *("model", "io", "scoring", "selection", "export", "shard_paths", "settings", "demo", "pipeline"),
        *("reporting", "defs", "definitions", "cli"),
    ),
    "io": (
        *("storage", "content_types", "limits", "value_bytes", "workers", "tiff", "archive", "batches", "policy"),
        *("fetch", "materialize", "reader", "writer", "parquet", "tar", "shard"),
    ),
    "scoring": ("*", "clip"),
    "cli": ("*", "commands", "entry_point", "__main__"),
    "pipeline": (
        *("raw", "parallel", "record", "record_index", "stored_records", "stage", "attempt", "execute"),
        *("pools", "throughput", "publishable", "counts", "tables"),
        *("stages", "many", "checks", "status", "due", "dataset_status", "up_to_date", "forget", "lineage", "files"),
        "release",
    ),
    "reporting": (
        *("text", "measures", "facts", "collect", "sketch", "drops", "prose", "page"),
        *("plots", "documents", "shard", "dataset"),
    ),
}

Module = tuple[str, ...]
"""A module's path below the package, such as ``("io", "tar", "reader")``; a folder stands for its ``__init__``."""


def module_of(file: Path) -> Module:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


FILES = {module_of(file): file for file in sorted(ROOT.rglob("*.py"))}


def imports_of(file: Path, *, at_run_time: bool) -> Iterator[Module]:
    """The package's own modules that ``file`` imports, inside functions too, and for types unless ``at_run_time``."""
    nodes: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if at_run_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports name their module in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            package, *parts = name.split(".")
            if package == ROOT.name:
                # what is imported from a module is a module itself, or a name in it
                yield tuple(parts) if tuple(parts) in FILES else tuple(parts[:-1])


@cache
def all_imports() -> dict[Module, set[Module]]:
    return {module: set(imports_of(file, at_run_time=False)) for module, file in FILES.items()}


def place(folder: str, name: str) -> int:
    """Where ``name`` stands in the order of ``folder``."""
    order = ORDER[folder]
    assert name in order or "*" in order, f"{name} of {folder} has no place in ORDER: what may it import?"
    return order.index(name if name in order else "*")


@pytest.mark.parametrize("folder", ORDER)
def test_imports_go_one_way(folder: str) -> None:
    inside = () if folder == "." else tuple(folder.split("/"))
    depth = len(inside)
    upward = [
        f"{'.'.join(module)} imports {'.'.join(imported)}"
        for module, found in all_imports().items()
        for imported in found
        # a folder's __init__ re-exports what is in it
        if len(module) > depth and len(imported) > depth and module[:depth] == imported[:depth] == inside
        if place(folder, module[depth]) < place(folder, imported[depth])
    ]
    assert upward == []


@pytest.mark.parametrize("folder", [folder for folder in ORDER if folder != "."])
def test_nothing_in_a_folder_imports_what_its_init_re_exports(folder: str) -> None:
    inside = tuple(folder.split("/"))
    assert [module for module, found in all_imports().items() if module[:-1] == inside and inside in found] == []


def test_every_folder_with_sub_folders_has_an_order() -> None:
    # so that no two folders can import each other, however indirectly
    parents = {file.parent.parent.relative_to(ROOT) for file in ROOT.rglob("__init__.py") if file.parent != ROOT}
    assert {parent.as_posix() for parent in parents} == {*ORDER}


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: set(imports_of(file, at_run_time=True)) - {module} for module, file in FILES.items()}
    assert cycle_in({".".join(module): {".".join(one) for one in found} for module, found in graph.items()}) is None


def cycle_in(graph: dict[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return None


def test_cycles_and_upward_imports_would_be_found(tmp_path: Path) -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}}) is not None
    for_types = "if TYPE_CHECKING:\n    import interleaved_assets.io.reader\n"
    (tmp_path / "a.py").write_text(f"{for_types}def f():\n    from interleaved_assets.io import tar\n")
    assert set(imports_of(tmp_path / "a.py", at_run_time=True)) == {("io", "tar")}
    assert set(imports_of(tmp_path / "a.py", at_run_time=False)) == {("io", "tar"), ("io", "reader")}
    assert all(place("io", low) < place("io", high) for low, high in pairwise(["storage", "reader", "tar"]))
    with pytest.raises(AssertionError, match="new of io has no place"):
        place("io", "new")


HEAVY = ("dagster", "torch", "open_clip", "matplotlib")
CLIP = "interleaved_assets.scoring.clip"
DEMO = "interleaved_assets.demo.shards"
# In the order in which one interpreter imports them: what is absent after a module was absent after those before it.
LOADS = {
    "interleaved_assets.cli": ("pandas", "pyarrow", "rich", *HEAVY, CLIP),  # --help and completion do not wait for them
    "interleaved_assets.model": ("pandas", *HEAVY, CLIP),
    # nothing makes an Arrow array of Python values on import: the first one imports pandas
    "interleaved_assets.io": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.scoring": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.scoring.score": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.selection": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.export": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.scoring.clip": ("pandas", *HEAVY),
    "interleaved_assets.pipeline.stages.dag": ("pandas", "webdataset", *HEAVY),
    "interleaved_assets.reporting.dataset.report": ("pandas", *HEAVY),
    "interleaved_assets.cli.trace": ("pandas", *HEAVY),
    "interleaved_assets.cli.what_if": ("pandas", *HEAVY),
    "interleaved_assets.cli.convert": ("pandas", *HEAVY),
    "interleaved_assets.cli.inspect": ("pandas", *HEAVY),
    "interleaved_assets.cli.validate": ("pandas", *HEAVY),
    "interleaved_assets.cli.score": ("pandas", *HEAVY),
    "interleaved_assets.cli.run": ("pandas", *HEAVY),
    "interleaved_assets.defs.build": ("pandas", "webdataset", "torch", "open_clip", "matplotlib", "jinja2", DEMO),
}


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """Which of the watched modules are loaded after each import."""
    code = (
        "import importlib, json, sys\n"
        f"watched, found = {('pandas', 'pyarrow', 'rich', 'webdataset', 'jinja2', *HEAVY, CLIP, DEMO)!r}, {{}}\n"
        f"for name in {tuple(LOADS)!r}:\n"
        "    importlib.import_module(name)\n"
        "    found[name] = [one for one in watched if one in sys.modules]\n"
        "print(json.dumps(found))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(run.stdout))


@pytest.mark.parametrize("module", LOADS)
def test_importing_one_does_not_load_the_other(module: str, loaded: dict[str, list[str]]) -> None:
    assert set(loaded[module]) & set(LOADS[module]) == set()


def test_dagster_and_clip_are_seen_where_they_are_loaded(loaded: dict[str, list[str]]) -> None:
    assert "dagster" in loaded["interleaved_assets.defs.build"]
    assert CLIP in loaded[CLIP]
