"""``--json`` of every command: JSON and nothing else on stdout, errors as one line on stderr."""

import json
import re
from pathlib import Path

import click
import pytest

from interleaved_assets.cli import main
from interleaved_assets.cli.commands.group import interleaved
from interleaved_assets.cli.terminal.console import print_json
from interleaved_assets_tests.documents import STAGES, good_shard, project

ARGUMENTS = {
    "init": ["--file", "new.toml"],
    "settings": [],
    "demo": [],
    "inspect": ["raw"],
    "validate": ["raw"],
    "convert": ["raw/a.tar", "-o", "parquet", "--to", "parquet"],
    "score": ["raw/a.tar", "a.scores.parquet"],
    "select": ["raw/a.tar", "out/image_scores/a.parquet", "a.selected.tar", "--filter", "min_sharpness=100"],
    "run": ["a", "b", "--jobs", "1"],
    "status": [],
    "recipe": ["diff", "obelics"],
    "report": [],
    "serve": [],
    "what-if": ["min_sharpness=0"],
    "forget": ["gone"],
    "trace": ["doc-1-b"],
    "drops": ["--shard", "a"],
    "view": ["a"],
    "release": ["v2"],
    "verify": ["v1"],
}
"""Of every command, arguments with which it finds something, in the folder ``here``."""
FOUND = {
    "init": {"file": "new.toml", "raw_root": "{here}/data/raw"},
    "settings": {"selection.min_sharpness": {"value": 100.0, "default": 100.0}},
    "recipe": {"name": "obelics", "different": {"selection.min_short_side": {"recipe": 150, "in_force": None}}},
    "inspect": {"uri": "{here}/raw/a.tar", "form": "tar"},
    "validate": {"uri": "{here}/raw/a.tar", "sound": True},
    "convert": {"input": "{here}/raw/a.tar", "current": False},
    "score": {"input": "raw/a.tar", "images": 5},
    "select": {"output": "a.selected.tar", "dropped": {"sharpness_below": 1}},
    "run": {"shard": "a", "stage": "normalized", "outcome": "current"},
    "status": {"shard": "a", "state": "complete"},
    "report": {"report": "{here}/out/dataset_report.html", "shards": {"complete": 2, "vanished": 1}},
    "what-if": {"shards": 3, "now": {"images_kept": 12}, "then": {"images_kept": 15}},
    "forget": {"removed": False, "partitions_removed": False},
    "trace": {"sample_id": "doc-1-b", "searched": 3, "skipped": {}},
    "drops": {"shard": "a", "sample_id": "doc-1-b", "reason": "sharpness_below"},
    "view": {"page": "a.html", "documents": 3, "chosen": "3 documents"},
    "release": {"name": "v2", "tars": 2, "copied": False, "counts": {"images": 8}, "left_out": {}},
    "verify": {"release": "v1", "tars": 2, "sound": True, "findings": []},
}
"""Part of the first object that each prints; the demo takes too long here."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two shards that went through all stages, their release, and outputs of a shard that is gone."""
    folder = tmp_path_factory.mktemp("project")
    project(folder)
    for number, name in enumerate(("a", "b", "gone"), start=1):
        good_shard(folder / f"raw/{name}.tar", seed=number)
    settings = ["--settings", str(folder / "interleaved.toml")]
    assert main([*settings, "run", "--json"]) == 0
    (folder / "raw/gone.tar").unlink()
    assert main([*settings, "release", "v1", "--incomplete", "--json"]) == 0
    return folder


@pytest.fixture(autouse=True)
def in_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


def help_of_json(name: str) -> str:
    options = [option for option in interleaved.commands[name].params if "--json" in option.opts]
    assert len(options) == 1, f"{name} has no option --json"
    assert isinstance(options[0], click.Option)
    return options[0].help or ""


def includes(found: object, part: object) -> bool:
    if isinstance(part, dict) and isinstance(found, dict):
        return all(name in found and includes(found[name], value) for name, value in part.items())
    return found == part


@pytest.mark.parametrize("name", sorted(interleaved.commands.keys() - {"serve"}))  # which goes on: test_serve.py
def test_stdout_has_json_and_nothing_else(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = "a line" in help_of_json(name)
    arguments = ARGUMENTS[name]
    options = ["--incomplete"] if name == "release" else []
    code = main([name, *arguments, *options, "--json"])
    printed = capsys.readouterr()
    if name == "demo":  # of a folder with other shards
        assert (code, printed.out) == (2, "")
        assert f"{here}/raw holds shards that are not the demo's, such as a" in printed.err
        return
    assert (code, printed.err) == (0, "")
    objects = [json.loads(line) for line in printed.out.splitlines()]
    assert printed.out.isascii()
    assert several or len(objects) == 1
    expected = json.loads(json.dumps(FOUND[name]).replace("{here}", str(here)))
    assert includes(objects[0], expected), objects[0]


@pytest.mark.parametrize("name", interleaved.commands)
def test_an_error_is_one_line_on_stderr(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    # several problems: for people, each has a line
    Path("wrong.toml").write_text("[run]\nparallel_shards = 0\nshards_per_run = 0\n")
    arguments = ["--file", "interleaved.toml"] if name == "init" else ARGUMENTS[name]
    assert main(["--settings", "wrong.toml", name, *arguments, "--json"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert re.match(r"interleaved: (wrong|interleaved)\.toml.* ", printed.err)


@pytest.mark.parametrize(
    ("arguments", "code", "found", "message"),
    [
        (["trace", "nobody"], 1, {"searched": 3, "shards": []}, "no sample 'nobody' in 3 shards"),
        (["forget", "never"], 1, {"shards": {}}, "nothing is stored of shard 'never'"),
        (["drops", "--shard", "never"], 1, None, "no shard 'never' has been materialized"),
        (["view", "never"], 1, None, "no shard 'never' has been materialized"),
        (["release", "v3"], 2, None, "1 of 3 shards are not current"),
        (["trace", "--tar", "copy.tar"], 2, None, "no record describes it"),
        (["convert"], 2, None, "Missing argument 'INPUT…'; see interleaved convert --help"),
    ],
)
def test_nothing_found(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    found: dict[str, object] | None,
    message: str,
) -> None:
    (here / "copy.tar").write_bytes(b"another")
    assert main([*arguments, "--json"]) == code
    printed = capsys.readouterr()
    if found is None:
        assert printed.out == ""
    else:
        assert includes(json.loads(printed.out), found)
    assert message in printed.err
    assert printed.err.count("\n") == (1 if message else 0)


def test_rows_of_a_sample_at_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "doc-1-b", "--json"]) == 0
    (shard,) = json.loads(capsys.readouterr().out)["shards"]
    stages = {stage["stage"]: stage for stage in shard["stages"]}
    assert list(stages) == list(STAGES)
    kept = {"normalized": 4, "image_scores": 2, "document_scores": 2, "filtered": 3, "final_tars": 3}
    assert {name: stages[name]["kept"] for name in kept} == kept
    (dropped,) = [row for row in stages["filtered"]["rows"] if row["outcome"] != "kept"]
    assert (dropped["position"], dropped["outcome"], dropped["threshold"]) == (2, "dropped: sharpness_below", 100.0)


def test_findings_of_verify(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["release", "v4", "--incomplete", "--to", str(here.parent / "copy"), "--json"]) == 0
    (here.parent / "copy/tars/a.tar").unlink()
    capsys.readouterr()
    assert main(["verify", str(here.parent / "copy"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["sound"] is False
    assert [(one["code"], Path(one["uri"]).name) for one in found["findings"]] == [("missing", "a.tar")]


def test_numbers_that_json_lacks_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"nan": float("nan"), "in": [float("inf"), (1.5, "NaN")]})
    assert capsys.readouterr().out == '{"nan": null, "in": [null, [1.5, "NaN"]]}\n'
