"""``inspect``, ``validate``, ``score`` and ``select`` on the command line."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from interleaved_assets.cli import main
from interleaved_assets_tests.documents import document, good_shard, write_shard
from interleaved_assets_tests.layouts import foreign_tar

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with a good shard ``a.tar``, and files that are none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    whole = good_shard(tmp_path / "a.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.tar").touch()
    (tmp_path / "text.tar").write_text("no tar")
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "nothing").mkdir()
    os.mkfifo(tmp_path / "pipe.tar")
    return tmp_path


@pytest.mark.parametrize(
    "command", [["inspect"], ["validate"], ["convert", "--output", "out", "--to", "parquet"]], ids=lambda it: it[0]
)
def test_a_file_in_a_folder_whose_name_is_not_utf_8_fails_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    good_shard(tmp_path / "in" / "b.tar")
    try:
        good_shard(Path(os.fsdecode(b"in/a\xff.tar")))
    except OSError:
        pytest.skip("this file system has no such names")
    assert main([*command, "in"]) == 2
    printed = capsys.readouterr()
    assert printed.err == rf"interleaved: {tmp_path}/in/a\udcff.tar: the file's name is not UTF-8; rename it" + "\n"
    assert f"{tmp_path}/in/b.tar" in printed.out


@pytest.mark.parametrize("command", ["inspect", "validate"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope.tar", "cannot find nope.tar: No such file or directory"),
        ("empty.tar", "empty.tar is empty"),
        ("text.tar", "text.tar is not a tar"),
        ("empty.parquet", "empty.parquet is not a sound Parquet file"),
        ("nothing", "nothing holds no file that ends in .tar"),
        ("pipe.tar", "pipe.tar: it is not a regular file"),
        ("*.xyz", "matches no file that ends in"),
        ("", "an input is an empty text"),
        ("foo://x", "Protocol not known: foo"),
    ],
)
def test_what_is_no_shard_is_one_line_of_error(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, name: str, message: str
) -> None:
    assert main([command, name]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_exit_codes_of_validate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "a.tar"]) == 0
    assert "a.tar: sound (3 samples, 13 rows, 5 images)" in capsys.readouterr().out
    assert main(["validate", "a.tar", "cut.tar"]) == 1
    assert "finding incomplete (1): the tar is cut at byte" in capsys.readouterr().out
    assert main(["validate", "text.tar", "a.tar", "cut.tar", "--json"]) == 2
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("sound") for line in lines] == [None, True, False]
    assert "is not a tar" in lines[0]["error"]


def test_inspect_as_text_and_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "a.tar", "-n", "1"]) == 0
    printed = capsys.readouterr().out
    assert "  samples  3\n" in printed
    assert "document doc-0-a\n" in printed
    assert "doc-0-b" not in printed
    assert main(["inspect", "a.tar", "text.tar", "--json"]) == 2
    facts, failed = map(json.loads, capsys.readouterr().out.splitlines())
    assert (facts["counts"]["rows"], facts["images"][0]["format"]) == (13, "image/png")
    assert set(failed) == {"input", "error"}


@pytest.mark.parametrize("kind", ["img2dataset", "mmc4"])
def test_another_layout_is_told_by_every_command(folder: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    (folder / "other.tar").write_bytes(foreign_tar(kind))
    advice = "set reading.texts_field and reading.images_field if the lists have other names"
    assert main(["inspect", "other.tar"]) == 0
    assert advice in capsys.readouterr().out
    assert main(["inspect", "other.tar", "--json"]) == 0
    assert advice in json.loads(capsys.readouterr().out)["layout"][-1]
    assert main(["view", "other.tar", "--json"]) == 0
    printed = capsys.readouterr()
    assert advice in printed.err
    assert advice in json.loads(printed.out)["layout"][-1]
    assert advice in (folder / "other.html").read_text()
    for command in (["inspect"], ["view", "--overwrite"]):
        assert main([command[0], "a.tar", *command[1:]]) == 0
        printed = capsys.readouterr()
        assert advice not in printed.out + printed.err


def test_score_and_select(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "a.tar", "s.parquet", "--scorer", "sharpness_256"]) == 0
    scores = pq.read_table(folder / "s.parquet")
    assert (scores.num_rows, "sharpness_256" in scores.column_names, "sharpness" in scores.column_names) == (
        5,
        True,
        False,
    )
    select = ["select", "a.tar", "s.parquet"]
    assert main([*select, "b.parquet", "--filter", "min_sharpness_256=100", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (facts["counts_out"]["rows"], facts["dropped"]) == (12, {"sharpness_256_below": 1})
    assert pq.read_table(folder / "b.parquet").num_rows == 12
    assert pq.read_table(folder / "b.parquet.dropped.parquet")["reason"].to_pylist() == ["sharpness_256_below"]
    good_shard(folder / "other.tar", seed=7)
    assert main(["select", "other.tar", "s.parquet", "c.tar", "--filter", "min_sharpness_256=100"]) == 2
    assert "s.parquet has no score of the images of" in capsys.readouterr().err
    assert not (folder / "c.tar").exists()
    # by the section, whose default needs another score
    assert main([*select, "c.tar"]) == 2
    assert "filter 'sharpness' needs the score sharpness" in capsys.readouterr().err
    assert not (folder / "c.tar").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "a.tar", "a.tar", "--overwrite"], "a.tar is the input"),
        (["score", "a.tar", "text.tar"], "cannot write text.tar: the file exists"),
        (["score", ".", "x.parquet"], "name one of them"),
        (["score", "a.tar", "x.parquet", "--scorer", "blur"], "no scorer named blur; there are sharpness"),
        (["select", "a.tar", "nope.parquet", "x.tar"], "cannot read nope.parquet"),
        (["select", "a.tar", "text.tar", "x.tar"], "text.tar is not a sound Parquet file"),
        (["select", "a.tar", "no_id.parquet", "x.tar"], "no_id.parquet: no column sample_id; columns are position, "),
        (
            ["select", "a.tar", "places.parquet", "x.tar"],
            "places.parquet: column 'position' is string and cannot become",
        ),
        (
            ["select", "a.tar", "words.parquet", "x.tar"],
            "words.parquet: column 'sharpness' is string and cannot become d",
        ),
        (["select", "a.tar", "s.parquet", "x.tar", "--ledger", "x.tar"], "cannot both be written to x.tar"),
        (["select", "a.tar", "s.parquet", "x.zip", "--filter", "min_sharpness=1"], "its name has to end in .tar"),
    ],
)
def test_a_wrong_argument_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["score", "a.tar", "s.parquet"]) == 0
    scores = pq.read_table(folder / "s.parquet")
    words = pa.array(["x"] * scores.num_rows)
    pq.write_table(scores.drop_columns(["sample_id"]), folder / "no_id.parquet")
    for name, column in (("places", "position"), ("words", "sharpness")):
        place = scores.column_names.index(column)
        pq.write_table(scores.set_column(place, column, words), folder / f"{name}.parquet")
    capsys.readouterr()
    before = sorted(path.name for path in folder.iterdir())
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("texts", "last"), [(19, "    18  text      18"), (22, "        … 3 more rows; --json has all")]
)
def test_inspect_shows_the_first_rows_of_a_long_document(
    folder: Path, capsys: pytest.CaptureFixture[str], texts: int, last: str
) -> None:
    write_shard(folder / "long.tar", {"doc": document(*map(str, range(texts)))})
    assert main(["inspect", "long.tar"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    shown = lines[lines.index("document doc") + 1 :]
    assert shown[-1] == last
    assert len(shown) == min(texts + 1, 21)
    assert main(["inspect", "long.tar", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["documents"]["doc"]) == texts + 1


def test_scores_that_are_not_there_leave_their_filters_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "interleaved.toml").write_text("[selection]\nmin_clip = 0.2\n")
    assert main(["score", "a.tar", "s.parquet"]) == 0
    assert main(["select", "a.tar", "s.parquet", "b.tar"]) == 0
    assert capsys.readouterr().err == "filters that need other scores and are not applied: clip\n"


@pytest.mark.torch
def test_scores_of_clip_are_measured_if_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = ROOT / "data/models"
    (folder / "interleaved.toml").write_text(
        f'[clip]\nmodel = "scenes-clip"\nmodel_config_path = "{models}/scenes-clip.json"\n'
        f'pretrained = "{models}/scenes-clip.safetensors"\nallow_demo_model = true\n'
    )
    assert main(["score", "a.tar", "s.parquet", "--clip"]) == 0
    scores = pq.read_table(folder / "s.parquet")
    assert pc.all(scores["clip_score"].is_valid()).as_py()
    least = pc.max(scores["clip_score"]).as_py()
    assert main(["select", "a.tar", "s.parquet", "b.parquet", "--filter", f"min_clip={least}", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["dropped"] == {"clip_below": scores.num_rows - 1}
