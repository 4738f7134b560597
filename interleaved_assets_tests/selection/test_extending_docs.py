"""The code in docs/extending.md runs in order on a generated shard."""

import re
import sys
from pathlib import Path

import pytest

from interleaved_assets.io import InterleavedWebdatasetReader
from interleaved_assets.model import SettingsError
from interleaved_assets.scoring import known_scorers, score_images, unregister_scorer
from interleaved_assets.selection import (
    SelectionSettings,
    filter_batch,
    known_filters,
    select,
    selection_rows,
    unregister_filter,
)
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.io.tars import write_tar
from interleaved_assets_tests.scoring.drawn import encode, even, noise

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def shard(tmp_path, monkeypatch):
    """data/raw/part.tar: a document with a sharp, a blurred and a dark image, and one with a single blurred image."""
    monkeypatch.chdir(tmp_path)
    images = [encode(image) for image in (noise(60, 80), even(60, 80), noise(60, 80) // 16)]
    texts, tokens = [None, None, None, "ten words " * 5], [*(f"doc.{number}.png" for number in range(3)), None]
    write_tar(
        Path("data/raw/part.tar"),
        ("doc.json", {"texts": texts, "images": tokens}),
        *((f"doc.{number}.png", image) for number, image in enumerate(images)),
        ("bad.json", {"texts": [None], "images": ["bad.1.png"]}),
        ("bad.1.png", images[1]),
    )


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """The page's modules of ``my_team``, importable and not yet imported; the page's settings."""
    scorer, filters = (block for block in blocks("python") if block.startswith("# my_team/"))
    for source in (scorer, filters):
        file = tmp_path / source.partition("\n")[0].removeprefix("# ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(source, encoding="utf-8")
    turned_on, own_column, own_filters = blocks("toml")
    settings = tmp_path / "interleaved.toml"
    settings.write_text(turned_on + own_column + own_filters.removeprefix("[selection]\n"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield settings
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_team"]:
        del sys.modules[name]
    for name in {"brightness"} & set(known_scorers()):
        unregister_scorer(name)
    for name in {"megapixels", "words"} & set(known_filters()):
        unregister_filter(name)


def run(source):
    exec(compile(source, str(PAGE), "exec"), {"__name__": "example"})


def test_the_scripts_run_and_drop_what_is_blurred(shard, capsys):
    chain, thresholds, texts, *_ = blocks("python")
    run(chain)
    assert "3 rows dropped: ['sample_dropped', 'sharpness_below']" in capsys.readouterr().out
    (result,) = InterleavedWebdatasetReader("data/sharp")
    assert set(result.to_pyarrow()["position"].to_pylist()) == {-1, 0, 2, 3}
    run(thresholds)
    assert [line.split()[:4] for line in capsys.readouterr().out.splitlines()] == [
        [threshold, "2", "of", "4"] for threshold in ("50", "100", "200")
    ]
    run(texts)
    dropped = {"sample_id": "doc", "position": 3, "reason": "length_below", "measured": 50.0}
    assert capsys.readouterr().out.strip() == str([dropped])


def test_own_scorers_and_filters_work_from_the_settings_to_the_ledger(shard, plugins):
    settings = load_settings(plugins)
    assert settings.plugins.modules == ("my_team.scorers", "my_team.filters")
    (batch,) = InterleavedWebdatasetReader("data/raw", materialize_on_read=True)
    scores = score_images(batch.to_pyarrow(), settings.scoring)
    brightness = scores["brightness"].to_pylist()
    # a sixteenth of noise over 0 to 255, and the noise itself
    assert 5 < brightness[2] < 10 < 100 < brightness[0] < 150
    bounds = settings.selection.own
    only = SelectionSettings(order=(), own={"brightness": bounds["brightness"]})
    ledger = select(selection_rows(batch.to_pyarrow()), scores, only).ledger
    assert (ledger["reason"].to_pylist(), ledger["threshold"].to_pylist()) == (["brightness_below"], [20.0])
    only = SelectionSettings(order=(), own={name: bounds[name] for name in ("megapixels", "words")})
    _, dropped = filter_batch(batch, only, settings.scoring)
    # 60 x 80 pixels are 0.0048 megapixels: all images go, then the second document; the first has 10 words
    assert set(dropped["reason"].to_pylist()) == {"megapixels_below", "sample_dropped", "words_below"}
    _, dropped = filter_batch(batch, settings.selection, settings.scoring)
    assert dropped.num_rows == batch.count()


@pytest.mark.parametrize(
    ("modules", "source", "message"),
    [
        (
            '["my_team.no"]',
            "",
            r"plugins\.modules: .*my_team\.no cannot be imported: No module named 'my_team\.no'",
        ),
        (
            '["my_team.no"]',
            "",
            r"Install its package into this environment, or add the folder it lies in to PYTHONPATH",
        ),
        ('["my_team.scorers"]', "def (", r"my_team\.scorers fails while it is imported: SyntaxError: "),
        ('["my_team.scorers"]', "from math import nothing", r"ImportError: cannot import name 'nothing' from 'math'"),
        (
            '["my_team.scorers"]',
            "from interleaved_assets.selection import *; register_filter(SampleFilter('qr', len))",
            r"my_team\.scorers fails while it is imported: OptionError: filter 'qr': the name is taken",
        ),
        ('"my_team.scorers"', "", r"plugins\.modules: Input should be a valid tuple, got 'my_team\.scorers'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(plugins, modules, source, message):
    (plugins.parent / "my_team/scorers.py").write_text(source, encoding="utf-8")
    plugins.write_text(f"[plugins]\nmodules = {modules}\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=message):
        load_settings(plugins)


def test_modules_may_be_named_in_the_environment(plugins, monkeypatch):
    plugins.write_text('[scoring]\nscorers = ["sharpness", "qr", "brightness"]\n', encoding="utf-8")
    with pytest.raises(SettingsError, match="no scorer named brightness"):
        load_settings(plugins)
    monkeypatch.setenv("INTERLEAVED_PLUGINS__MODULES", '["my_team.scorers"]')
    assert load_settings(plugins).scoring.scorers == ("sharpness", "qr", "brightness")
