"""The code in docs/extending.md runs, in its order, on a shard made here."""

import io
import json
import re
import tarfile
import tomllib
from pathlib import Path

import pytest

from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader
from interleaved_assets.scoring import ScoringSettings
from interleaved_assets.scoring.registry import unregister_scorer
from interleaved_assets.selection import SelectionSettings, filter_batch
from interleaved_assets.selection.filters import unregister_filter
from interleaved_assets_tests.scoring.images import encode, even, noise

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def shard(tmp_path, monkeypatch):
    """data/raw/part.tar: a document with a sharp, a blurred and a dark image, and one with a single blurred image."""
    monkeypatch.chdir(tmp_path)
    images = {"0": noise(60, 80), "1": even(60, 80), "2": noise(60, 80) // 16}
    documents = {
        "doc": {"texts": [None, None, None, "ten words " * 5], "images": ["doc.0.png", "doc.1.png", "doc.2.png", None]},
        "bad": {"texts": [None], "images": ["bad.1.png"]},
    }
    Path("data/raw").mkdir(parents=True)
    with tarfile.open("data/raw/part.tar", "w") as archive:
        for key, document in documents.items():
            members = {f"{key}.json": json.dumps(document).encode()}
            for name in filter(None, document["images"]):
                members[name] = encode(images[name.split(".")[1]])
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


def run(source):
    exec(compile(source, str(PAGE), "exec"), {"__name__": "example"})


def test_the_scripts_run_and_drop_what_is_blurred(shard, capsys):
    chain, thresholds, *_ = blocks("python")
    run(chain)
    assert "3 rows dropped: ['sample_dropped', 'sharpness_below']" in capsys.readouterr().out
    (result,) = InterleavedWebdatasetReader("data/sharp")
    assert set(result.to_pyarrow()["position"].to_pylist()) == {-1, 0, 2, 3}
    run(thresholds)
    assert [line.split()[:4] for line in capsys.readouterr().out.splitlines()] == [
        [threshold, "2", "of", "4"] for threshold in ("50", "100", "200")
    ]


def test_the_scorer_and_the_filters_are_registered_and_their_settings_load(shard):
    _, _, scorer, filters = blocks("python")
    scoring, own_column, own_filters = (tomllib.loads(block) for block in blocks("toml"))
    run(scorer)
    run(filters)
    try:
        (batch,) = InterleavedWebdatasetReader("data/raw")
        settings = SelectionSettings(**{**own_column["selection"], "order": ("brightness",)})
        _, ledger = filter_batch(batch, settings, ScoringSettings(**scoring["scoring"]))
        assert ledger["reason"].to_pylist() == ["brightness_below"]
        assert ledger["threshold"].to_pylist() == [20.0]
        _, ledger = filter_batch(batch, SelectionSettings(order=(), own=own_filters["selection"]["own"]))
        # 60 x 80 pixels are 0.0048 megapixels: all images go, then the second document; the first has 10 words
        assert set(ledger["reason"].to_pylist()) == {"megapixels_below", "sample_dropped", "words_below"}
    finally:
        unregister_scorer("brightness")
        unregister_filter("megapixels")
        unregister_filter("words")
