"""The examples of docs/training.md, run on a release of two small shards, whose final tars are split."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import pyarrow.dataset
import pytest

from interleaved_assets.pipeline.release.make import make_release
from interleaved_assets_tests.documents import blurred_image, document, good_shard, project, sharp_image, write_shard
from interleaved_assets_tests.projects import take_all

PAGE = Path(__file__).parents[1] / "docs/training.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
KEYS = sorted(f"doc-{seed}-{letter}" for seed in range(2) for letter in "abc")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the page calls FOLDER and OUTPUT_ROOT: two shards with six documents, each in two tars."""
    folder = tmp_path_factory.mktemp("training")
    settings = project(folder, "[final_tars]\nmax_samples_per_tar = 2\n")
    for seed in range(2):
        good_shard(folder / f"raw/{seed}.tar", seed=seed)
        take_all(settings, str(seed))
    make_release("v1", settings, to=str(folder / "v1"), documents=True)
    return {"FOLDER": str(folder / "v1"), "OUTPUT_ROOT": str(folder / "out")}


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def run(containing: str, places: dict[str, Any]) -> dict[str, Any]:
    """The names that the block with this text leaves."""
    (block,) = [block for block in BLOCKS if containing in block]
    names = {**places, "__name__": "example"}
    exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_every_block_is_run_here() -> None:
    run_here = re.findall(r'run\("(.+?)", places', Path(__file__).read_text())
    assert len(BLOCKS) == len(run_here) == len({*run_here})


@pytest.mark.torch
def test_every_sample_is_read_once_over_nodes_and_workers(
    places: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run("DataLoader", places)
    assert sorted(names["keys"]) == KEYS
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen = []
    for node in range(2):
        monkeypatch.setenv("RANK", str(node))
        of_node = [key for key, _ in names["loader"](places["FOLDER"])]
        assert of_node
        seen += of_node
    assert sorted(seen) == KEYS
    monkeypatch.delenv("WORLD_SIZE")
    items = dict(iter(names["loader"](places["FOLDER"], workers=0)))["doc-0-a"]
    assert [type(item) for item in items] == [str, bytes, str]
    import webdataset

    of_one_shard = webdataset.WebDataset(f"{places['FOLDER']}/tars/0~{{00000..00001}}.tar", shardshuffle=False)
    assert [sample["__key__"] for sample in of_one_shard] == KEYS[:3]


@pytest.mark.torch
def test_wids_reads_the_index(places: dict[str, Any], tmp_path: Path) -> None:
    wids = pytest.importorskip("wids")
    names = run("ShardListDataset", places)
    assert len(names["samples"]) == 6
    assert names["document"]["texts"] == [None, "seven", None, "eight nine"]
    again = wids.ShardListDataset(f"{places['FOLDER']}/wids.json", transformations=[], cache_dir=str(tmp_path))
    assert [again[number]["__key__"] for number in range(6)] == KEYS


def test_pyarrow_reads_the_rows(places: dict[str, Any]) -> None:
    assert sorted(run("filter=pyarrow.dataset.field", places)["texts"]["text_content"].to_pylist()) == sorted(
        ["one two three", "four", "five six", "seven", "eight nine"] * 2
    )


def test_pyarrow_reads_the_columns_of_all_shards(tmp_path: Path) -> None:
    settings = project(tmp_path)
    for key, fields in {"a": {}, "b": {"licence": "CC0"}}.items():
        write_shard(tmp_path / f"raw/{key}.tar", {key: document("text", sharp_image(1), **fields)})
        take_all(settings, key)
    places = {"OUTPUT_ROOT": str(tmp_path / "out")}
    filtered = str(tmp_path / "out/filtered")
    assert "licence" not in pyarrow.dataset.dataset(filtered, format="parquet").schema.names
    assert "licence" not in pandas.read_parquet(filtered).columns
    every_column = run("unify_schemas", places)["every_column"]
    assert {*every_column.to_table()["licence"].to_pylist()} == {None, "CC0"}


def test_datasets_reads_the_rows(places: dict[str, Any]) -> None:
    pytest.importorskip("datasets")
    names = run("binary_content", places)
    assert names["first"]["sample_id"] == "doc-0-a"
    assert sum(row["modality"] == "image" for row in names["rows"]) == 8


def test_datasets_loads_the_folder(places: dict[str, Any]) -> None:
    datasets = pytest.importorskip("datasets")
    names = run("load_dataset(FOLDER", places)
    assert [row["key"] for row in names["encoded"]] == KEYS
    assert names["first"]["texts"] == ["one two three", None, "four"]
    assert [image and image["path"] for image in names["first"]["images"]] == [None, "doc-0-a.1.png", None]
    loaded = datasets.load_dataset(places["FOLDER"])["train"]
    assert [[image and image.size for image in row["images"]] for row in loaded.select([0, 1])] == [
        [None, (64, 48), None],
        [None, (64, 48)],
    ]


def test_datasets_reads_the_tars_through_a_generator(places: dict[str, Any]) -> None:
    pytest.importorskip("datasets")
    rows = list(run("from_generator", places)["train"])
    assert [row["key"] for row in rows] == KEYS
    assert [len(row["images"]) for row in rows] == [1, 1, 2] * 2


def test_its_own_reader_of_tars_fails_or_loses_images_as_the_page_says(places: dict[str, Any], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    with pytest.raises(ValueError, match="don't share the same prefix or the same types"):
        datasets.load_dataset("webdataset", data_files=f"{places['FOLDER']}/tars/0~00001.tar", streaming=True)
    alike = {f"a{number}": document("text", sharp_image(1)) for number in range(5)}
    tar = write_shard(tmp_path / "b.tar", {**alike, "b": document(sharp_image(2), "text", sharp_image(3))})
    loaded = datasets.load_dataset("webdataset", data_files=str(tar), split="train", streaming=True)
    last = list(loaded)[-1]
    assert last["json"]["images"] == ["b.0.png", None, "b.2.png"]
    assert last["1.png"] is None
    assert {"0.png", "2.png"} & {*last} == set()


@pytest.mark.system  # its preparation starts processes
@pytest.mark.torch
def test_energon_reads_the_tars_with_the_loader_of_the_page(
    places: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    energon = pytest.importorskip("megatron.energon")
    folder = tmp_path / "v1"
    shutil.copytree(places["FOLDER"], folder)
    write_shard(folder / "tars/gap.tar", {"gap": document("before", blurred_image(), None, "after", sharp_image(1))})
    (command,) = re.findall("^energon prepare .*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    command = command.replace("FOLDER", str(folder)).replace("8,1,1", "1,0,0")
    subprocess.run([sys.executable, "-m", "megatron.energon.cli.main", *shlex.split(command)[1:]], check=True)
    (page,) = [block for block in BLOCKS if "part_filter" in block]
    assert "sample_loader" in run("part_filter", places)

    def samples(folder: Path, loader: str) -> dict[str, list[Any]]:
        (folder / ".nv-meta/sample_loader.py").write_text(loader)
        dataset = energon.get_train_dataset(
            folder,
            batch_size=None,
            shuffle_buffer_size=None,
            max_samples_per_sequence=None,
            repeat=False,
            worker_config=energon.WorkerConfig(rank=0, world_size=1, num_workers=0),
        )
        found = energon.get_loader(dataset)
        return {sample.__key__.rpartition("/")[2]: sample.sequence for sample in found}

    other = shutil.copytree(folder, tmp_path / "other")  # a loader is imported once for each folder
    read = samples(folder, page)
    assert sorted(read) == [*KEYS, "gap"]
    assert [item if isinstance(item, str) else tuple(item.shape) for item in read["doc-0-c"]] == [
        (3, 48, 64),
        "seven",
        (3, 48, 64),
        "eight nine",
    ]
    assert [isinstance(item, str) for item in read["gap"]] == [True, False, True, False]
    assert samples(other, page.replace('raw[image.split(".", 1)[1]]', "raw[image]")) == {}
    assert "KeyError: 'doc-0-a.1.png'" in capfd.readouterr().err
