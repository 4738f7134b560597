"""``make bench`` at a tiny scale: the published shape, a line for each direction, outputs that were compared."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench, dataset


def test_scale_1_has_the_published_shards_and_samples() -> None:
    size = bench.size_at(1)
    samples = [size.samples_of(shard) for shard in range(size.shards)]
    assert (len(samples), sum(samples), {*samples}) == (80, 6818, {85, 86})
    small = bench.size_at(0.05)
    assert [small.samples_of(shard) for shard in range(small.shards)] == [86, 85, 85, 85]


@pytest.mark.system
def test_it_prints_the_figures_of_every_direction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # the pictures cut out of these are noise, whose spectrum does not matter here
    noise = np.random.default_rng(0).integers(0, 256, (dataset.CANVAS_SIDE, dataset.CANVAS_SIDE, 3), np.uint8)
    monkeypatch.setattr(dataset, "draw_canvases", lambda seed: [noise])
    monkeypatch.setattr(bench, "MEAN_PIXELS", 10_000)
    monkeypatch.setattr(bench, "find_peer", lambda named: None)
    bench.main(["--scale", "0.001", "--work", str(tmp_path)])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("1 shards, 7 samples, 0.00 GB of tars, ")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:-1]]
    assert [row[0] for row in cells if row[1] == "this project"] == [
        "tar → Parquet",
        "tar → tar",
        "Parquet → tar",
        "Parquet → Parquet",
    ]
    for direction, by, seconds, megabytes, samples, output in cells:
        assert re.fullmatch(r"\d+\.\d\d", seconds), direction
        assert int(megabytes) >= 0
        if by == "cp":
            assert (samples, output) == ("", "")
        else:
            assert int(samples) > 0
            assert output == "exact"
    assert lines[-1].startswith("peer: not measured, nemo-curator is not installed")
