"""Private names of Dagster are used in one module alone, and there are at most five."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._annotations import is_public

from interleaved_assets.defs import private
from interleaved_assets.model.errors import SettingsError
from interleaved_assets_tests.defs.runs import NO_TELEMETRY

ALLOWED = Path(private.__file__)
PACKAGE = ALLOWED.parents[1]
FILES = sorted(set(PACKAGE.rglob("*.py")) - {ALLOWED})
DEFS = [path for path in FILES if path.is_relative_to(ALLOWED.parent)]
CONTEXTS = {
    "AssetExecutionContext": {"op_execution_context"},  # what Dagster's deprecation notices recommend
    "OpExecutionContext": {"partition_keys"},
    "AssetCheckExecutionContext": {"instance", "run"},
    "SensorEvaluationContext": {"log"},  # in Dagster's guides to sensors and schedules
    "ScheduleEvaluationContext": {"log"},
}
"""Members that Dagster documents without marking them as public."""


def public_members(name: str) -> set[str]:
    owner = getattr(dg, name)
    found = {member for member in dir(owner) if is_public(inspect.getattr_static(owner, member))}
    if name == "AssetExecutionContext":
        found |= public_members("OpExecutionContext")  # which it stands for
    return found | CONTEXTS.get(name, set())


def name_of(node: ast.expr) -> str:
    """The dotted name of an expression; nothing for others."""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def private_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            if re.match(r"dagster(\.|_\w+\.)_|dagster_shared|dagster\..*\._", module):
                yield module


def private_members(tree: ast.AST) -> Iterator[str]:
    """Attributes with an underscore, except those of ``self`` and ``cls``, and members that are not public."""
    for node in attributes(tree):
        if re.match("_[^_]", node.attr) and name_of(node.value) not in ("self", "cls"):
            yield name_of(node) or node.attr
        of_instance = name_of(node.value).rpartition(".")[2] == "instance"
        if of_instance and node.attr not in public_members("DagsterInstance"):
            yield name_of(node)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for argument in (argument for argument in function.args.args if argument.annotation):
            kinds = re.findall(r"dg\.(\w+Context)", ast.unparse(argument.annotation))  # type: ignore[arg-type]
            public = set.intersection(*(public_members(kind) for kind in kinds)) if kinds else set()
            for node in attributes(function):
                if kinds and name_of(node.value) == argument.arg and node.attr not in public:
                    yield name_of(node)


def attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def test_only_defs_imports_dagster() -> None:
    others = [path for path in FILES if path not in DEFS and path.name != "definitions.py"]
    assert len(others) > 50
    assert [path for path in others if re.search(r"^\s*(import|from) dagster", path.read_text(), re.MULTILINE)] == []


@pytest.mark.parametrize("path", DEFS, ids=lambda path: str(path.relative_to(ALLOWED.parent)))
def test_other_files_use_public_names_only(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert list(private_imports(tree)) == []
    # fields of our own named tuples
    assert [name for name in private_members(tree) if not re.search(r"\._(replace|fields|asdict)$", name)] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from dagster._core.events import DagsterEvent", ["dagster._core.events.DagsterEvent"]),
        ("from dagster_shared.check import CheckError", ["dagster_shared.check.CheckError"]),
        ("import dagster._core", ["dagster._core"]),
        ("context.instance.event_log_storage", ["context.instance.event_log_storage"]),
        ("def f(context: dg.SensorEvaluationContext): context.run_requests", ["context.run_requests"]),
        ("run._tags", ["run._tags"]),
        ("def f(context: dg.AssetExecutionContext): context.run.tags; self._x; context.instance.delete_run", []),
    ],
)
def test_private_names_are_found(code: str, found: list[str]) -> None:
    tree = ast.parse(code)
    assert [*private_imports(tree), *private_members(tree)] == found


def test_at_most_five_private_names_are_used() -> None:
    tree = ast.parse(ALLOWED.read_text())
    assert sorted({*private_imports(tree), *private_members(tree)}) == [
        "dagster._core.definitions.asset_checks.asset_check_evaluation.AssetCheckEvaluationTargetMaterializationData",
        "dagster._core.definitions.source_asset.SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION",
        "instance.compute_log_manager",
        "instance.event_log_storage",
        "instance.get_latest_storage_id_by_partition",
    ]


@pytest.mark.parametrize(("module", "name"), [("sqlite", "SqliteStorage"), ("postgres", "PostgresStorage")])
def test_an_instance_of_an_earlier_version_is_told_what_to_change(tmp_path: Path, module: str, name: str) -> None:
    storage = {"custom": {"module": f"interleaved_assets.defs.private_api.{module}", "class": name}}
    (tmp_path / "dagster.yaml").write_text(json.dumps({"storage": storage, **NO_TELEMETRY}))
    with pytest.raises(SettingsError, match=r"Delete the section `storage` of \$DAGSTER_HOME/dagster.yaml"):
        dg.DagsterInstance.from_config(str(tmp_path))
