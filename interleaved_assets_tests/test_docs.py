"""The docs against the repository: paths, and in the two pages of operating also settings, checks and commands."""

import re
from pathlib import Path

import pytest
from dagster import ScheduleDefinition
from pydantic import BaseModel

from interleaved_assets.cli.commands.group import interleaved
from interleaved_assets.defs.build import build_definitions
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.selection.filters import BUILT_IN
from interleaved_assets.selection.settings import bound_settings
from interleaved_assets.settings import Settings
from interleaved_assets.settings.sections import fields_of
from interleaved_assets_tests.documents import project

REPOSITORY = Path(__file__).parents[1]
OPERATING = [REPOSITORY / f"docs/{name}.md" for name in ("operating", "operating-reference")]
TEXT = "".join(page.read_text(encoding="utf-8") for page in OPERATING)
CODE = re.findall(r"`([^`\n]+)`", TEXT)
SECTIONS = tuple(Settings.model_fields)
PACKAGE = REPOSITORY / "interleaved_assets"
FOLDERS = sorted(
    f"{path.relative_to(PACKAGE)}/"
    for path in PACKAGE.rglob("*")
    if path.is_dir() and "__pycache__" not in path.parts and any(file.is_file() for file in path.iterdir())
)
PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob("docs/**/*.md"),
        REPOSITORY / "benchmarks/README.md",
        REPOSITORY / "data/models/README.md",
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_path_it_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    link = r"\]\(([\w./-]+)(?:#[\w-]+)?\)"
    links = set(re.findall(link, text))
    assert {target for target in links if not (page.parent / target).exists()} == set()
    text = re.sub(link, "]", text)
    roots = "interleaved_assets_tests|interleaved_assets|deploy|docs|benchmarks|data/models"
    in_repository = set(re.findall(rf"(?<![\w./-])(?:{roots})/[\w./-]*\w", text))
    assert {path for path in in_repository if not (REPOSITORY / path).exists()} == set()
    # in code, a path that begins with a folder of the package is relative to the package
    tops = "|".join(folder.rstrip("/") for folder in FOLDERS if folder.count("/") == 1)
    in_package = set(re.findall(rf"`((?:{tops})/[\w./-]*)`", text))
    assert {path for path in in_package if not (PACKAGE / path).exists()} == set()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_heading_it_links_to_exists(page: Path) -> None:
    links = set(re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text(encoding="utf-8")))
    assert {link for link in links if link[1] not in anchors(page.parent / link[0] if link[0] else page)} == set()


def test_the_architecture_has_one_line_for_every_folder() -> None:
    text = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    described = re.findall(r"^\| `([\w/]+/)` \|", text, flags=re.MULTILINE)
    # the front door of a folder of folders needs no line
    doors = {"__init__.py", "__init__.pyi", "__main__.py", "entry_point.py"}
    assert sorted(described) == [
        folder for folder in FOLDERS if {file.name for file in (PACKAGE / folder).iterdir() if file.is_file()} - doors
    ]


def names_of_settings(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Every setting by its dotted name."""
    found: set[str] = set()
    for name, field in fields_of(model).items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found |= names_of_settings(inner, f"{prefix}{name}.")
        else:
            found.add(f"{prefix}{name}")
    return found


def test_every_setting_it_names_exists() -> None:
    formats = re.findall(r"`([^`\n]+)`", (REPOSITORY / "docs/formats.md").read_text(encoding="utf-8"))
    named = {match[1] for code in (*CODE, *formats) if (match := re.match(rf"((?:{'|'.join(SECTIONS)})\.\w+)", code))}
    assert len(named) > 15
    assert named - names_of_settings(Settings) == set()


def test_every_configuration_file_it_names_exists() -> None:
    paths = {code for code in CODE if re.fullmatch(r"\w+\.(?:yaml|toml)", code)}
    assert "dagster.yaml" in paths
    assert {path for path in paths if not (REPOSITORY / path).exists()} == set()


def test_every_check_sensor_and_schedule_has_a_line(tmp_path: Path) -> None:
    definitions = build_definitions(project(tmp_path))
    graph = definitions.resolve_asset_graph()
    checks = {key.name for key in graph.asset_check_keys}
    launchers = {sensor.name for sensor in definitions.sensors or ()}
    launchers |= {schedule.name for schedule in definitions.schedules or ()}
    lines = set(re.findall(r"^\| `(\w+)` \|", TEXT, flags=re.MULTILINE))
    assert lines == checks | launchers


def test_every_check_is_listed_with_the_assets_that_have_it(tmp_path: Path) -> None:
    graph = build_definitions(project(tmp_path)).resolve_asset_graph()
    stages = stage_dag(project(tmp_path))
    checks_of = {name: stage.checks for name, stage in stages.items()}
    chain, scores = {*stages}, {name for name, stage in stages.items() if stage.output.kind.endswith("scores")}
    rows = re.findall(r"^\| (● )?`(\w+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", TEXT, flags=re.MULTILINE)
    held = {name for mark, name, _ in rows if mark}
    assert held == {check.name for asset in chain for check in checks_of[asset] if not check.compares}
    for mark, name, where in rows:
        has = {key.asset_key.path[-1] for key in graph.asset_check_keys if key.name == name}
        if mark:  # one of those that materialization_errors holds
            has = {asset for asset in chain if name in {check.name for check in checks_of[asset]}}
        listed = {
            "every asset that writes": chain,
            "all but `final_tars`": chain - {"final_tars"},
            "the scores": scores,
        }.get(where, set(re.findall(r"`(\w+)`", where)))
        assert listed == has, f"docs/operating-reference.md, the line of {name} in the table of checks: {sorted(has)}"


def test_the_checks_of_stages_that_settings_turn_on_are_listed(tmp_path: Path) -> None:
    on = '[clip]\nenabled = true\n[export]\nenabled = true\n[rewriting]\nfunctions = ["normalize_unicode"]\n'
    (tmp_path / "on").mkdir()
    stages, always = stage_dag(project(tmp_path / "on", on)), stage_dag(project(tmp_path))
    listed = dict(re.findall(r"^\* `(\w+)`, with `[\w.]+`: (.*)[;.]$", TEXT, flags=re.MULTILINE))
    assert {name: re.findall(r"`(\w+)`", checks) for name, checks in listed.items()} == {
        name: [check.name for check in stage.checks] for name, stage in stages.items() if name not in always
    }


@pytest.mark.parametrize("line", re.findall(r"^interleaved ([^#\n]+?)\s*#", TEXT, flags=re.MULTILINE))
def test_every_command_parses(line: str) -> None:
    words = re.sub(r"<[^>]+>", "something", line).split()
    with interleaved.make_context("interleaved", words) as context:
        name, command, rest = interleaved.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        command.make_context(name, rest, parent=context)


def test_the_hours_it_names_are_those_of_the_schedules(tmp_path: Path) -> None:
    (retention,) = [
        schedule
        for schedule in build_definitions(project(tmp_path)).schedules or ()
        if isinstance(schedule, ScheduleDefinition) and schedule.name == "delete_old_runs"
    ]
    minute, hour, *_ = str(retention.cron_schedule).split()
    assert f"{int(hour):02}:{int(minute):02} UTC" in TEXT


def test_the_readme_names_each_filter_with_its_settings() -> None:
    table = [line.split("|") for line in (REPOSITORY / "README.md").read_text().splitlines() if line.startswith("| `")]
    settings_of = {name: cells[2] for cells in table for name in re.findall(r"`(\w+)`", cells[1])}
    for name in BUILT_IN:
        for setting in filter(None, bound_settings(name)):
            assert f"`{setting}`" in settings_of.get(name, ""), (
                f"README.md, table of filters: a line for `{name}` with `{setting}`"
            )
