"""What imports what: one direction between and inside folders, no cycles, the library free of Dagster and torch."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from interleaved_assets.defs.executors import WORK_OF_STEPS

ROOT = Path(__file__).parents[1] / "interleaved_assets"

# Each folder holds files or folders, apart from its front door. Of folders with folders in them, here is the order:
# each imports from those before it alone.
ORDER = {
    ".": (
        "model",
        "io",
        "scoring",
        "selection",
        "export",
        "rewriting",
        "settings",
        "demo",
        "pipeline",
        "reporting",
        "defs",
        "cli",
    ),
    "io": (
        "storage",
        "tiff",
        "archive",
        "rows",
        "parquet",
        "tar",
        "warc",
        "web_documents",
        "pdf",
        "image_files",
        "formats",
    ),
    "scoring": ("images", "texts", "protocol", "scores", "clip"),
    "pipeline": ("raw", "run", "checks", "stages", "status", "lineage", "files", "release"),
    "reporting": ("wording", "figures", "plots", "documents", "shard", "dataset", "served"),
    "cli": ("terminal", "commands"),
}
FRONT_DOORS = ("__init__", "__main__", "definitions", "entry_point")
"""Modules beside folders: nothing in these folders imports them."""

Module = tuple[str, ...]
"""A module's path below the package, such as ``("io", "tar", "reader")``; a folder stands for its ``__init__``."""


def module_of(file: Path) -> Module:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


FILES = {module_of(file): file for file in sorted(ROOT.rglob("*.py"))}


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports_of(file: Path, *, at_run_time: bool) -> Iterator[Module]:
    """The package's own modules that ``file`` imports, inside functions too, and for types unless ``at_run_time``."""
    nodes: list[ast.AST] = [tree_of(file)]
    while nodes:
        node = nodes.pop()
        if at_run_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
            continue
        nodes += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
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
    assert name in order or name in FRONT_DOORS, f"{name} of {folder} has no place in ORDER: what may it import?"
    return order.index(name) if name in order else len(order)


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


def test_a_folder_holds_files_or_folders() -> None:
    # so that no folder and its own sub-folder, and no two folders, can import each other, however indirectly
    parents = {file.parent.parent for file in ROOT.rglob("__init__.py") if file.parent != ROOT}
    assert {parent.relative_to(ROOT).as_posix() for parent in parents} == {*ORDER}
    assert [file for parent in parents for file in parent.glob("*.py") if file.stem not in FRONT_DOORS] == []


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for module, file in FILES.items():
        for node in tree_of(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(".".join(module))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


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
    for_types = "if TYPE_CHECKING:\n    import interleaved_assets.io.rows.reader\n"
    (tmp_path / "a.py").write_text(f"{for_types}def f():\n    from interleaved_assets.io import tar\n")
    assert set(imports_of(tmp_path / "a.py", at_run_time=True)) == {("io", "tar")}
    assert set(imports_of(tmp_path / "a.py", at_run_time=False)) == {("io", "tar"), ("io", "rows", "reader")}
    assert all(place("io", low) < place("io", high) for low, high in pairwise(["storage", "rows", "tar", "__init__"]))
    with pytest.raises(AssertionError, match="new of io has no place"):
        place("io", "new")


HEAVY = ("dagster", "torch", "open_clip", "matplotlib")
CLIP = "interleaved_assets.scoring.clip"
# In the order in which one interpreter imports them: what is absent after a module was absent after those before it.
LOADS = {
    "interleaved_assets.cli": ("pandas", "pyarrow", "rich", *HEAVY, CLIP),  # --help and completion do not wait for them
    "interleaved_assets.model": ("pandas", *HEAVY, CLIP),
    # nothing makes an Arrow array of Python values on import: the first one imports pandas
    "interleaved_assets.io": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.scoring": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.scoring.protocol.score": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.selection": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.export": ("pandas", *HEAVY, CLIP),
    "interleaved_assets.scoring.clip": ("pandas", *HEAVY),
    "interleaved_assets.pipeline.stages.dag": ("pandas", "webdataset", *HEAVY),
    "interleaved_assets.reporting.dataset.report": ("pandas", *HEAVY),
    "interleaved_assets.pipeline.lineage.sample": ("pandas", *HEAVY),
    "interleaved_assets.pipeline.files.convert": ("pandas", *HEAVY),
    "interleaved_assets.pipeline.files.inspect": ("pandas", *HEAVY),
    "interleaved_assets.pipeline.files.validate": ("pandas", *HEAVY),
    "interleaved_assets.pipeline.files.score": ("pandas", *HEAVY),
    "interleaved_assets.pipeline.run.many": ("pandas", *HEAVY),
}


def loaded_after(names: Iterable[str], watched: Iterable[str]) -> dict[str, list[str]]:
    """Which of the watched modules are loaded after each import, one after the other in one interpreter."""
    code = (
        "import importlib, json, sys\n"
        f"watched, found = {tuple(watched)!r}, {{}}\n"
        f"for name in {tuple(names)!r}:\n"
        "    importlib.import_module(name)\n"
        "    found[name] = [one for one in watched if one in sys.modules]\n"
        "print(json.dumps(found))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(run.stdout))


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    return loaded_after(LOADS, ("pandas", "pyarrow", "rich", "webdataset", *HEAVY, CLIP))


@pytest.mark.parametrize("module", LOADS)
def test_importing_one_does_not_load_the_other(module: str, loaded: dict[str, list[str]]) -> None:
    assert set(loaded[module]) & set(LOADS[module]) == set()


def test_clip_is_seen_where_it_is_loaded(loaded: dict[str, list[str]]) -> None:
    assert CLIP in loaded[CLIP]


# What a step, a tick or a command brings itself.
READS_SHARDS = ("numpy", "pyarrow", "cv2", "PIL", "zxingcpp", "sqlalchemy", "alembic", "webdataset")
OTHERS = (
    *("pandas", "torch", "torchvision", "open_clip", "onnxruntime", "matplotlib", "jinja2", "rich", "structlog"),
    *("s3fs", "aiobotocore", "botocore", "boto3", "requests", "grpc", "psycopg2"),
    *("dagster_aws", "dagster_graphql", "dagster_k8s", "dagster_postgres", "kubernetes", "ray"),
    *("dagster._core.execution.backfill", "interleaved_assets.demo.shards"),
)
ALL_ON = """
[clip]
enabled = true
[export]
enabled = true
reencode = "jpeg"
[scoring]
scorers = ["sharpness", "sharpness_grey", "sharpness_256", "qr", "nsfw", "thumbnail"]
[selection]
min_short_side = 10
max_nsfw = 0.5
"""


def loaded_by(code: str, watched: Iterable[str], folder: Path) -> set[str]:
    """Those of ``watched`` that an interpreter of its own has loaded after ``code``."""
    (folder / "interleaved.toml").write_text(ALL_ON, encoding="utf-8")
    code = f"import sys\n{code}\nprint('', *(one for one in {tuple(watched)!r} if one in sys.modules), sep='\\n=')"
    environment = {**os.environ, "INTERLEAVED_SETTINGS": str(folder / "interleaved.toml")}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return {line.removeprefix("=") for line in run.stdout.splitlines() if line.startswith("=") and len(line) > 1}


def test_the_definitions_load_no_model_and_no_client_of_a_store(tmp_path: Path) -> None:
    watched = [*OTHERS, "webdataset", "dagster"]
    assert loaded_by(f"import interleaved_assets.definitions, {WORK_OF_STEPS}", watched, tmp_path) == {"dagster"}
    assert [name for name in READS_SHARDS if find_spec(name) is None] == []


def test_help_loads_no_more_than_click(tmp_path: Path) -> None:
    code = "from interleaved_assets.cli import main\nassert not main(['--help']) and not main(['run', '--help'])"
    unneeded = ("dagster", "pydantic", "fsspec", "asyncio", "interleaved_assets.settings", "interleaved_assets.model")
    assert loaded_by(code, [*READS_SHARDS, *OTHERS, *unneeded, "click"], tmp_path) == {"click"}


# Of what commands load before they look at the data, what is not loaded by all of them.
PARQUET, STAGES, WORKERS, REPORT = (
    "pyarrow.parquet",
    "interleaved_assets.pipeline.stages.dag",
    "pebble",
    "interleaved_assets.reporting.dataset.report",
)
# In the order in which one interpreter runs them: what is absent after a command was absent after those before it.
UNNEEDED = {
    ("settings",): (PARQUET, STAGES, WORKERS, REPORT),
    ("init",): (PARQUET, STAGES, WORKERS, REPORT),
    ("recipe", "list"): (PARQUET, STAGES, WORKERS, REPORT),
    ("verify", "v1"): (PARQUET, STAGES, WORKERS, REPORT),
    ("inspect", "raw"): (STAGES, WORKERS, REPORT),
    ("validate", "raw"): (STAGES, WORKERS, REPORT),
    ("convert", "raw", "-o", "converted", "--to", "tar"): (STAGES, WORKERS, REPORT),
    ("trace", "sample"): (WORKERS, REPORT),
    ("what-if", "min_sharpness=1"): (WORKERS, REPORT),
    ("release", "v1"): (WORKERS, REPORT),
    ("forget", "--vanished"): (WORKERS, REPORT),
    ("status",): (WORKERS, REPORT),
    ("run",): (REPORT,),
    ("report",): (),
}
# What only data of some form, a model, the UI or a store needs. Arrow, OpenCV and the decoders are loaded by all.
NEEDLESS = (
    *(name for name in OTHERS if name != "rich"),
    *("dagster", "sqlalchemy", "alembic", "webdataset"),
    *("fastwarc", "selectolax", "pypdfium2", "fasttext", "charset_normalizer"),
    "PIL.FitsImagePlugin",  # as all formats of Pillow that no image here has
)


def test_a_command_waits_for_no_import_that_it_does_without(tmp_path: Path) -> None:
    watched = [*NEEDLESS, PARQUET, STAGES, WORKERS, REPORT]
    assert [name for name in NEEDLESS if name not in OTHERS and find_spec(name) is None] == []
    code = (
        "import json, sys\n"
        "from interleaved_assets.cli import main\n"
        f"for command in {[*UNNEEDED]!r}:\n"
        "    code = main([*command])\n"
        f"    print('=' + json.dumps([code, [one for one in {watched!r} if one in sys.modules]]))\n"
    )
    (tmp_path / "raw").mkdir()
    (tmp_path / "own.toml").write_text('[storage]\nraw_root = "raw"\noutput_root = "out"\n')
    environment = {**os.environ, "INTERLEAVED_SETTINGS": "own.toml"}
    environment.pop("DAGSTER_HOME", None)  # of an instance, whose partitions forget would remove with Dagster
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    found = [json.loads(line[1:]) for line in run.stdout.splitlines() if line.startswith("=[")]
    assert [
        (command, one)
        for (command, unneeded), (_, loaded) in zip(UNNEEDED.items(), found, strict=True)
        for one in loaded
        if one in {*NEEDLESS, *unneeded}
    ] == []
    assert [code for code, _ in found] == [0, 0, 0, 2, 2, 2, 2, 1, 1, 2, 2, 0, 0, 1], run.stdout + run.stderr
    assert set(found[-1][1]) == {PARQUET, STAGES, WORKERS, REPORT}
