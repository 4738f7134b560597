"""Every benchmark starts on tiny data and ends: figures are not judged here, only that the scripts fit the package.

``benchmarks.bench`` and ``benchmarks.fuzz`` have tests of their own (``test_bench.py``, ``test_fuzz.py``); the former
starts the worker ``own_io``, and ``scale`` starts ``scale_probe``. They take a minute together, and no user notices
that a benchmark no longer starts: ``make test-all`` runs them.
"""

import gzip
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from s3fs import S3FileSystem

from interleaved_assets_tests.documents import STAGES, good_shard

FOLDER = Path(__file__).parents[1] / "benchmarks"
ELSEWHERE = {"bench", "own_io", "scale_probe"}
MISSING = "nemo-curator is not installed here: benchmarks/README.md says how to make its environment"

Start = Callable[..., str]
pytestmark = pytest.mark.system


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Start:
    """A function that runs a benchmark in this process with arguments, and returns what it prints."""

    def run(name: str, *arguments: str | Path) -> str:
        S3FileSystem.clear_instance_cache()  # one of a server that another benchmark has started, and ended
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        found = importlib.import_module(f"benchmarks.{name}").main()
        assert found in (None, 0)
        return capfd.readouterr().out

    return run


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pictures of noise in place of the drawn ones of ``benchmarks.dataset``."""
    from benchmarks import dataset

    canvas = np.random.default_rng(0).integers(0, 256, (dataset.CANVAS_SIDE, dataset.CANVAS_SIDE, 3), np.uint8)
    monkeypatch.setattr(dataset, "draw_canvases", lambda seed: [canvas])
    monkeypatch.setattr(dataset.DatasetSize.__init__, "__defaults__", (2, 2, 0, 20240717, 10_000))


def test_every_script_is_started_here() -> None:
    scripts = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")}
    started = set(re.findall(r'(?:start|missing)\(\s*"(\w+)"', Path(__file__).read_text(encoding="utf-8")))
    assert scripts == started | ELSEWHERE


def test_sharpness(start: Start) -> None:
    assert start("sharpness", "--count", "1").count("| `sharpness_256` | 150 |") == 2


def test_scores(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import scores

    monkeypatch.setattr(scores, "ROUNDS", 1)
    monkeypatch.setattr(scores, "canvas", lambda rng: rng.integers(0, 256, (1536, 1536, 3), np.uint8))
    assert "decided in" in start("scores", "--images", "2", "--threads", "1", "--stored", "1000")


def test_warc(start: Start, tmp_path: Path) -> None:
    assert "| 1 | " in start("warc", "--count", "2", "--processes", "1")
    for folder in ("html", "ground-truth"):
        (tmp_path / folder).mkdir()
    html = "<nav>not these</nav><main><p>Some words and others.</p></main>"
    (tmp_path / "html/0001.html.gz").write_bytes(gzip.compress(html.encode()))
    truth = {"url": "https://a.example/", "ground_truth": {"main_content": "Some words, and more."}}
    (tmp_path / "ground-truth/0001.json").write_text(json.dumps(truth))
    printed = start("warc", "--pages", tmp_path, "--processes", "1")
    assert "| interleaved-assets | 1 | 0.750 | 0.750 | 0.750 |" in printed
    assert "| article, interleaved-assets | 1 | 0.750 | 0.750 | 0.750 | |" in printed


def test_pdf(start: Start) -> None:
    printed = start("pdf", "--engine", "ours", "--seeds", "1")
    assert "| report.pdf | 6 | " in printed
    assert "| two columns, rows | 1.00 |" in printed
    assert "| ruled table, any | 1.00 |" in printed


def test_big_texts(start: Start) -> None:
    lines = start(
        "big_texts", "--megabytes", "0.01", "--rows", "50", "one phrase", "rows", "invalid bytes"
    ).splitlines()
    assert [line.split(" | ")[1] for line in lines[2:5]] == ["2496", "200", "None"]
    assert [line.count("final_tars") for line in lines[2:5]] == [1, 1, 0]
    assert "Invalid UTF8" in lines[4]


def test_text_oracle(start: Start, tmp_path: Path) -> None:
    good_shard(tmp_path / "a.tar")
    page = {"ground_truth": {"main_content": "Some words, and more.\n\n§ … ! " * 9}}
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/0001.json").write_text(json.dumps(page))
    (tmp_path / "pages/0002.json").write_text(json.dumps({"ground_truth": {}}))
    printed = start("text_oracle", tmp_path / "a.tar", tmp_path / "pages")
    assert printed.count(" | 0 | 0 | – |") >= 3
    assert "NOT" not in printed


def test_recipes(start: Start, tmp_path: Path) -> None:
    good_shard(tmp_path / "tars/a.tar")
    (tmp_path / "pages").mkdir()
    page = {"ground_truth": {"main_content": "Some words, and more of them { here }.\n\nThe end."}}
    (tmp_path / "pages/0001.json").write_text(json.dumps(page))
    data = [f"mine={tmp_path / 'tars'}", f"pages={tmp_path / 'pages'}"]
    lines = start("recipes", *data, "--no-demo", "--recipe", "nemotron-cc-mm").splitlines()
    assert "| filter | unit | mine | pages |" in lines
    assert "| `document_words` | document | 0 of 3 (0%) | 0 of 1 (0%) |" in lines
    assert any(line.startswith("- pages, 0001, document_words_below 11 of 20: 'Some words") for line in lines)


def test_text_scores(start: Start) -> None:
    figures = json.loads(start("text_scores", "--megabytes", "0.05"))
    speeds = figures["speeds"]
    assert {"all rules", "all rules, 2 threads", "words", "repetition"} <= set(speeds)
    assert all(speed["mb_per_second"] > 0 for speed in speeds.values())


def test_dataset_and_a_turn_of_the_chain(start: Start, tmp_path: Path, noise: None) -> None:
    said = start("dataset", "--output", tmp_path, "--form", "jpeg", "--shards", "1", "--samples", "2")
    raw = tmp_path / "jpeg-seed20240717"
    assert said.endswith(f"in {raw}\n")
    figures = json.loads(start("chain_turn", "stages", "--raw", raw, "--work", tmp_path / "turn"))
    assert tuple(figures["by_stage"]) == STAGES


def test_real_shards(start: Start, tmp_path: Path) -> None:
    said = start("real_shards", "--tars", good_shard(tmp_path / "a.tar"), "--work", tmp_path / "work")
    assert "a.tar: 3 samples, 5 images, 13 rows in" in said


def missing(name: str, *arguments: str | Path) -> str:
    """What a script of the peer says without the peer, which is one line."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), *map(str, arguments)]
    ended = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, input="{}")
    assert ended.returncode == 1
    assert ended.stdout == ""
    return ended.stderr.strip()


def test_the_peers_scripts_name_the_package_that_is_missing() -> None:
    assert missing("peer_chain") == MISSING
    assert missing("peer_io") == MISSING
    assert missing("peer_scores_worker") == MISSING
    assert missing("peer_losses", "--side", "peer") == MISSING


def test_the_scripts_that_compare_end_with_the_peers_message(
    start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python = ("--peer-python", sys.executable)
    with pytest.raises(SystemExit, match="the side 'peer' ended with status 1"):
        start("peer_losses", *python)
    with pytest.raises(SystemExit, match=r"peer_scores_worker\.py ended with status 1"):
        start("peer_scores", *python, "--tars", good_shard(tmp_path / "a.tar"))
    with pytest.raises(SystemExit, match=r"peer_io\.py ended with status 1"):
        start("io_directions", *python, "--work", tmp_path, "--no-own", "--rounds", "1")
    assert capfd.readouterr().err.count(MISSING) == 3


def test_the_chain_and_the_four_directions(start: Start, tmp_path: Path, noise: None) -> None:
    size = ("--rounds", "1", "--form", "jpeg", "--form", "members", "--shards", "1", "--samples", "2")
    printed = start("chain", "--work", tmp_path / "chain", *size)
    for ratio in ("dagster / stages: ", "run, referenced / straight: ", "straight, lazily / straight: "):
        assert ratio in printed
    alone = start("chain", "--work", tmp_path / "chain", *size[:4], *size[6:], "--way", "straight")
    assert "| jpeg | straight |" in alone
    assert "dagster" not in alone
    with pytest.raises(SystemExit):
        start("chain", "--work", tmp_path / "chain", "--way", "straight on")
    said = start("io_directions", "--work", tmp_path / "io", *size[:4], *size[6:], "--fresh")
    assert said.count("| jpeg | ") == 4


def test_memory(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import memory, memory_limits

    monkeypatch.setattr(memory, "SAMPLES", {"2 MB": 2})
    assert start("memory", "--work", tmp_path).count("| 2 MB |") == 4
    monkeypatch.setattr(memory_limits, "INPUTS", memory_limits.INPUTS[:1])
    assert len(start("memory_limits").splitlines()) == 3


def test_events(start: Start, tmp_path: Path) -> None:
    said = start("events", "--work", tmp_path / "events", "--shards", "2")
    assert "| seconds a shard and asset | " in said
    assert "queueing a run, seconds a shard: " in said


def test_scale(start: Start, tmp_path: Path) -> None:
    chosen = "sensor,many,nightly,s3,pages,report"
    said = start("scale", "--work", tmp_path / "a", "--shards", "41", "--storage", "sqlite", "--only", chosen)
    assert [name for name in chosen.split(",") if f"| {name} | " not in said] == []


def test_bucket(start: Start, tmp_path: Path) -> None:
    assert "Parquet" in start("bucket", "--work", tmp_path / "bucket", "--mib", "1", "--rounds", "1")


def test_cluster(start: Start) -> None:
    # a run on nodes is deploy/test_ray.py's
    assert "stage functions, CPU of a shard" in start("cluster", "--shards", "4", "--nodes", "")


def test_qr(start: Start) -> None:
    assert "zxing-cpp 3" in start("qr", "--count", "1")


@pytest.mark.torch
def test_clip(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("--images", "4")
    assert start("clip", *few, "--shards", "1", "--rounds", "1", "--batch-size", "4", "--model", "RN50")
    assert start("clip_differences", *few)
    assert start("clip_precision", *few)
    assert start("clip_device", "--batch-size", "4")
    assert start("clip_stand_in", "--images", "16", "--batch-size", "4")
