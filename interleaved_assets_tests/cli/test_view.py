"""``interleaved view``: pages of shards and of files, and what is said where there is nothing to show."""

import json
import re
import shutil
import webbrowser
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets_tests.documents import good_shard, write_shard


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is no project, as the current one."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_page_of_a_shard(curated: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "view", "a"]) == 0
    assert re.fullmatch(r"a\.html: 3 documents, \d\d KB\n", capsys.readouterr().out)
    page = (here / "a.html").read_text()
    assert "doc-97-b" in page
    assert "sharpness_below" in page
    assert page.count("data:image/webp") == 5


def test_documents_are_chosen_and_the_page_is_opened(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(webbrowser, "open", seen.append)
    out = str(tmp_path / "page.html")
    for options, said in (
        (["--reason", "sharpness_below"], "1 of 3 documents with rows dropped for sharpness_below"),
        (["--sample-id", "doc-97-a", "--sample-id", "doc-97-c"], "2 of 3 documents named"),
        (["--random", "2", "--seed", "1"], "2 of 3 documents, at random with seed 1"),
        (["--limit", "1"], "1 of 3 documents: 1 with dropped rows, of every reason in turn"),
    ):
        assert main([*curated, "view", "a", *options, "--out", out, "--overwrite", "--open"]) == 0
        assert f"{out}: {said}, " in capsys.readouterr().out
    assert seen == [Path(out).as_uri()] * 4


def test_a_file_needs_no_project(tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good_shard(tmp_path / "some.tar")
    assert main(["view", str(tmp_path / "some.tar")]) == 0
    assert capsys.readouterr().out.startswith("some.html: 3 documents")
    write_shard(tmp_path / "none.tar", {})
    assert main(["view", str(tmp_path / "none.tar")]) == 0
    assert "There is no document to show." in (here / "none.html").read_text()


def test_the_layout_of_the_project_is_that_of_its_files(
    tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {"paragraphs": ["a paragraph"], "images": [None], "texts": ["not this"]}
    write_shard(tmp_path / "own.tar", {"d": (fields, [])})
    (here / "interleaved.toml").write_text('[storage]\nraw_root = "raw"\n[reading]\ntexts_field = "paragraphs"\n')
    assert main(["view", str(tmp_path / "own.tar")]) == 0
    assert '<p dir="auto">a paragraph</p>' in (here / "own.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["aa"], 1, "no shard 'aa' has been materialized, and there is no such file: did you mean a?"),
        (["./a"], 1, "no shard './a' has been materialized, and there is no such file; interleaved status"),
        (["a", "--reason", "blur"], 1, "shard a lost no row for 'blur'; its reasons: sharpness_below"),
        (["a", "--sample-id", "x"], 1, "shard a has no document 'x'; it has 3 documents"),
        (["gone.tar"], 2, "cannot read gone.tar: No such file"),
        (["a", "--limit", "0"], 2, "Invalid value for '--limit': 0 is not in the range x>=1"),
        (["a", "--out", "no/such/folder/\0x"], 2, "is not UTF-8 text"),
        ([], 2, "Missing argument"),
    ],
)
def test_nothing_to_show(
    curated: list[str], here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert main([*curated, "view", *arguments]) == code
    assert message in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_a_shard_without_its_outputs_is_named_as_such(
    curated: list[str], tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out/normalized/a.parquet").unlink()
    assert main([*curated, "view", "a"]) == 1
    said = "interleaved: the outputs of shard a are not those of its record: interleaved run a\n"
    assert (capsys.readouterr().err, list(here.iterdir())) == (said, [])
    assert main([*curated, "run", "a"]) == 0
    assert main([*curated, "view", "a"]) == 0


def test_a_copied_shard_whose_raw_shard_is_gone_is_shown(
    curated: list[str], tmp_path: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "copy").rename(tmp_path / "out")
    (tmp_path / "raw/a.tar").unlink()  # no run compares its outputs
    assert main([*curated, "view", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 3
    Path(tmp_path / "out/normalized/a.parquet").write_bytes((tmp_path / "out/normalized/b.parquet").read_bytes())
    assert main([*curated, "view", "a", "--overwrite"]) == 1
    assert "the outputs of shard a are not those of its record" in capsys.readouterr().err


def test_no_project_and_no_shard(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "text.tar").write_bytes(b"no tar" * 200)
    assert main(["view", "text.tar"]) == 2
    assert "text.tar is not a tar" in capsys.readouterr().err
    assert main(["view", "some/key"]) == 2
    assert "no settings file" in capsys.readouterr().err
    for name in ("gone.tar", "memory://gone"):
        assert main(["view", name]) == 2
        assert f"cannot read {name}: " in capsys.readouterr().err


def test_a_page_does_not_replace_the_shard(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tar = good_shard(here / "a.tar")
    before = Path(tar).read_bytes()
    (here / "link.tar").symlink_to(tar)
    assert main(["view", "link.tar", "--out", "a.tar"]) == 2
    assert capsys.readouterr().err == "interleaved: a.tar is the input: name another file to write\n"
    assert Path(tar).read_bytes() == before
