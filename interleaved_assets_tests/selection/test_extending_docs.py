"""The code in docs/extending.md runs in order on a generated shard."""

import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.io import InterleavedWebdatasetReader
from interleaved_assets.model import SettingsError
from interleaved_assets.scoring import known_scorers, score_documents, score_images, unregister_scorer
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
    for source in (block for block in blocks("python") if block.startswith("# my_team/")):
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
    for name in {"brightness", "questions", "segmented"} & {*known_scorers(), *known_scorers("documents")}:
        unregister_scorer(name)
    for name in {"megapixels", "texts"} & set(known_filters()):
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
    only = SelectionSettings(order=(), own={name: bounds[name] for name in ("megapixels", "texts")})
    _, dropped = filter_batch(batch, only, settings.scoring)
    # 60 x 80 pixels are 0.0048 megapixels: all images go, then the second document; the first has 1 text
    assert set(dropped["reason"].to_pylist()) == {"megapixels_below", "sample_dropped", "texts_below"}
    _, dropped = filter_batch(batch, settings.selection, settings.scoring)
    assert dropped.num_rows == batch.count()


def test_an_own_scorer_of_texts_works_from_the_settings_to_the_ledger(shard, plugins):
    text = plugins.read_text(encoding="utf-8").replace(
        '"my_team.filters"]', '"my_team.filters", "my_team.text_scorers"]'
    )
    plugins.write_text('documents.scorers = ["questions"]\n' + text, encoding="utf-8")
    settings = load_settings(plugins)
    rows = pa.table(
        {
            "sample_id": ["a", "a", "b"],
            "position": pa.array([0, 1, 0], pa.int32()),
            "modality": ["text"] * 3,
            "text_content": ["What? Why?", "Who? Where?", "There."],
        }
    )
    scores = score_documents(rows, settings.documents)
    assert scores["questions"].to_pylist() == [4, 2, 2, 0, 0]
    only = SelectionSettings(order=(), document={"questions": {"max": 3}})
    ledger = select(selection_rows(rows), scores.slice(0, 0), only, documents=scores).ledger
    assert ledger["reason"].to_pylist() == ["document_questions_above"] * 2


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
        ('"my_team.scorers"', "", r"plugins\.modules: Input should be a list, got 'my_team\.scorers'"),
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


def test_a_segmenter_counts_words_of_scripts_without_white_space(shard, plugins):
    text = plugins.read_text(encoding="utf-8").replace('"my_team.filters"]', '"my_team.filters", "my_team.segmented"]')
    bound = "[selection]\ndocument.segmented_words = { min = 6 }\n"
    plugins.write_text(
        'documents.scorers = ["segmented"]\n' + text.replace("[selection]\n", bound, 1), encoding="utf-8"
    )
    settings = load_settings(plugins)
    rows = pa.table(
        {
            "sample_id": ["a", "a", "b"],
            "position": pa.array([0, 1, 0], pa.int32()),
            "modality": ["text"] * 3,
            "text_content": ["河流石头市场。", "two words", "ひらがな"],
        }
    )
    scores = score_documents(rows, settings.documents)
    assert scores["segmented_words"].to_pylist() == [8, 6, 2, 4, 4]
    assert scores["words"].to_pylist() == [3, 1, 2, 1, 1]
    only = SelectionSettings(order=(), document={"segmented_words": settings.selection.document["segmented_words"]})
    ledger = select(selection_rows(rows), pa.table({"sample_id": [], "position": []}), only, documents=scores).ledger
    assert [(line["sample_id"], line["reason"], line["measured"]) for line in ledger.to_pylist()] == [
        ("b", "document_segmented_words_below", 4.0)
    ]
