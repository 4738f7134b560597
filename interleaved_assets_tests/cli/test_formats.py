"""Every command on a small shard of every format."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.cli import main
from interleaved_assets.io import ReadOptions, ShardFormat, read_shard, register_format, unregister_format
from interleaved_assets.io.formats.registry import all_formats
from interleaved_assets.model import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.raw.keys import shard_key
from interleaved_assets_tests.documents import project
from interleaved_assets_tests.io.formats.samples import SAMPLES, write_samples

Run = Callable[..., list[dict[str, Any]]]
"""Runs a command with ``--json`` that has to succeed, and returns the objects that it prints."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a shard of each format, which have all been taken through the chain."""
    folder = tmp_path_factory.mktemp("formats")
    write_samples(folder / "raw")
    bound = "[selection]\nmin_short_side = 100000\n"  # drops each image
    light = "[pages]\nenabled = false\n[run]\npictures = false\n"
    project(folder, f'image_bytes = "referenced"\n[reading.urls]\nimage_store = "store"\n{light}{bound}')
    assert main(["--settings", str(folder / "interleaved.toml"), "run"]) == 0
    return folder


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def result(*arguments: str | Path) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["--settings", str(folder / "interleaved.toml"), *map(str, arguments), "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return result


def test_there_is_a_sample_of_every_ending_of_a_format() -> None:
    endings = {ending for one in all_formats() if one.name not in ("tar", "images") for ending in one.endings}
    assert endings == {name[name.index(".") :] for name in SAMPLES} - {".tar"}


@pytest.mark.parametrize("name", SAMPLES)
def test_single_file_commands(name: str, folder: Path, tmp_path: Path, run: Run) -> None:
    file = folder / "raw" / name
    (found,) = run("inspect", file)
    assert (found["counts"]["samples"], found["counts"]["images"], found["errors"]) == (1, 1, {})
    (valid,) = run("validate", file)
    assert [finding for finding in valid["findings"] if finding["level"] != "note"] == []
    (converted,) = run("convert", file, "-o", tmp_path, "--to", "tar")
    kept_name = name.removesuffix(".tar")
    assert Path(converted["output"]) == tmp_path / f"{kept_name}.tar"
    tables = pa.concat_tables(read_shard(converted["output"]))
    assert tables["binary_content"].drop_null().length() == 1
    (scored,) = run("score", file, tmp_path / "scores.parquet", "--scorer", "sharpness_256")
    assert scored["images"] == 1
    (selected,) = run(
        *("select", file, tmp_path / "scores.parquet", tmp_path / "kept.tar", "--filter", "min_short_side=100000")
    )
    assert selected["counts_out"]["images"] == 0
    assert pq.read_table(tmp_path / "kept.tar.dropped.parquet")["reason"].to_pylist()[-1] == "short_side_below"
    (viewed,) = run("view", file, "--out", tmp_path / "page.html")
    assert viewed["documents"] == 1
    assert "Words enough" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name", SAMPLES)
def test_commands_of_a_project(name: str, folder: Path, tmp_path: Path, run: Run) -> None:
    key = shard_key(name)
    assert key == name.removesuffix(".tar")
    final = folder / f"out/tars/{key}.tar"
    sample_id = pa.concat_tables(read_shard(str(final)))["sample_id"][0].as_py()
    (found,) = run("trace", sample_id, "--shard", key)
    (traced,) = found["shards"]
    assert (traced["shard"], traced["stages"][0]["stage"]) == (key, "normalized")
    assert traced["source"] == str(folder / "raw" / name)
    (of_tar,) = run("trace", "--tar", final)
    assert (of_tar["shard"], of_tar["source"]["uri"]) == (key, str(folder / "raw" / name))
    (viewed,) = run("view", key, "--out", tmp_path / "page.html")
    assert viewed["documents"] == 1
    assert "short_side_below" in {row["reason"] for row in run("drops", "--shard", key)}


def test_all_formats_of_one_folder_convert_into_one_folder(folder: Path, tmp_path: Path, run: Run) -> None:
    converted = run("convert", folder / "raw", "-o", tmp_path, "--to", "parquet")
    assert {Path(one["output"]).name for one in converted} == {f"{shard_key(name)}.parquet" for name in SAMPLES}


def test_a_format_of_a_plugin_that_raises_fails_its_files_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
        if "bad" in uri:
            raise KeyError("header")
        yield pa.Table.from_pylist([{"sample_id": "a", "position": -1, "modality": "metadata"}], INTERLEAVED_SCHEMA)

    for name in ("a-bad.own", "b.own"):
        (tmp_path / name).touch()
    register_format(ShardFormat("own", (".own",), read))
    try:
        for command in ("inspect", "validate"):
            assert main([command, str(tmp_path), "--json"]) == 2
            out, err = capsys.readouterr()
            failed, done = map(json.loads, out.splitlines())
            assert failed["error"] == f"{tmp_path}/a-bad.own: the reader of the format 'own' fails: KeyError: 'header'"
            assert err == f"interleaved: {failed['error']}\n"
            assert done["counts"]["samples"] == 1
    finally:
        unregister_format("own")
