"""The examples of docs/training.md, run on a release of two small shards, whose final tars are split."""

import re
from pathlib import Path
from typing import Any

import pytest

from interleaved_assets.pipeline.execute import take_through
from interleaved_assets.pipeline.release.make import make_release
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.documents import document, good_shard, project, sharp_image, write_shard

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
        for stage in stage_dag(settings).values():
            take_through(stage, str(seed), settings)
    make_release("v1", settings, to=str(folder / "v1"))
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
    assert sorted(run("pyarrow.dataset", places)["texts"]["text_content"].to_pylist()) == sorted(
        ["one two three", "four", "five six", "seven", "eight nine"] * 2
    )


def test_datasets_reads_the_rows(places: dict[str, Any]) -> None:
    pytest.importorskip("datasets")
    names = run("streaming=True", places)
    assert names["first"]["sample_id"] == "doc-0-a"
    assert sum(row["modality"] == "image" for row in names["rows"]) == 8


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
