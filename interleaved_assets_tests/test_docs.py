"""docs/operating.md against what is there: settings, checks, commands, files."""

import re
from pathlib import Path

import pytest
from dagster import ScheduleDefinition
from pydantic import BaseModel

from interleaved_assets.cli import parser
from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.schedules import REPORT_CRON
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import project

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs/operating.md"
TEXT = PAGE.read_text(encoding="utf-8")
CODE = re.findall(r"`([^`\n]+)`", TEXT)
SECTIONS = tuple(Settings.model_fields)


def names_of_settings(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Every setting by its dotted name."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found |= names_of_settings(inner, f"{prefix}{name}.")
        else:
            found.add(f"{prefix}{name}")
    return found


def test_every_setting_it_names_exists() -> None:
    named = {match[1] for code in CODE if (match := re.match(rf"((?:{'|'.join(SECTIONS)})\.\w+)", code))}
    assert len(named) > 15
    assert named - names_of_settings(Settings) == set()


def test_every_file_it_names_exists() -> None:
    links = set(re.findall(r"\]\(([\w./-]+)\)", TEXT))
    assert links
    assert {link for link in links if not (PAGE.parent / link).exists()} == set()
    of_ours = r"(?:interleaved_assets|deploy|docs)/[\w./-]+|\w+\.(?:yaml|toml)"
    paths = {code for code in CODE if re.fullmatch(of_ours, code)}
    assert "dagster.yaml" in paths
    assert {path for path in paths if not (REPOSITORY / path).exists()} == set()


def test_every_check_and_every_launcher_has_its_line(tmp_path: Path) -> None:
    definitions = build_definitions(project(tmp_path))
    graph = definitions.resolve_asset_graph()
    checks = {key.name for key in graph.asset_check_keys}
    launchers = {sensor.name for sensor in definitions.sensors or ()}
    launchers |= {schedule.name for schedule in definitions.schedules or ()}
    lines = set(re.findall(r"^\| `(\w+)` \|", TEXT, flags=re.MULTILINE))
    assert lines == checks | launchers


def test_every_check_stands_on_the_assets_that_have_it(tmp_path: Path) -> None:
    graph = build_definitions(project(tmp_path)).resolve_asset_graph()
    scores = {"image_scores"}
    chain = {"normalized", *scores, "filtered", "final_tars"}
    for name, where in re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", TEXT, flags=re.MULTILINE):
        has = {key.asset_key.path[-1] for key in graph.asset_check_keys if key.name == name}
        told = {
            "every asset that writes": chain,
            "all but `final_tars`": chain - {"final_tars"},
            "the scores": scores,
        }.get(where, set(re.findall(r"`(\w+)`", where)))
        assert told == has, name


@pytest.mark.parametrize("command", re.findall(r"^interleaved ([^#\n]+?)\s*#", TEXT, flags=re.MULTILINE))
def test_every_command_is_one(command: str) -> None:
    words = re.sub(r"<[^>]+>", "something", command).split()
    parser().parse_args(words)


def test_the_hours_it_names_are_those_in_force(tmp_path: Path) -> None:
    (retention,) = [
        schedule
        for schedule in build_definitions(project(tmp_path)).schedules or ()
        if isinstance(schedule, ScheduleDefinition) and schedule.name == "delete_old_runs"
    ]
    for cron in (REPORT_CRON, retention.cron_schedule):
        minute, hour, *_ = str(cron).split()
        assert f"{int(hour):02}:{int(minute):02} UTC" in TEXT
