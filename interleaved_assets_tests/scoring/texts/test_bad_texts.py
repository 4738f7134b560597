"""Texts that no one would write: no spaces, signs alone, invalid bytes, one very long row, very many rows."""

import gc
import threading
import weakref

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from interleaved_assets.scoring.protocol import texts as scoring_of_texts
from interleaved_assets.scoring.protocol.registry import known_scorers, register_scorer, unregister_scorer
from interleaved_assets.scoring.protocol.scorer import Range, Scorer
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.protocol.texts import score_documents
from interleaved_assets.scoring.scores import text_identity
from interleaved_assets.scoring.texts import batch
from interleaved_assets_tests.defects import stand_in

SCORERS = tuple(name for name in known_scorers("documents") if name != "language")
SETTINGS = DocumentSettings(scorers=SCORERS)
KEYS = ("sample_id", "position", "score_error")
HASHES = ("text_hash", "url_hash")


def rows(texts: list[str | None] | pa.Array) -> pa.Table:
    """One document."""
    count = len(texts)
    return pa.table(
        {
            "sample_id": ["a"] * count,
            "position": pa.array(range(count), pa.int32()),
            "modality": ["text"] * count,
            "text_content": texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string()),
        }
    )


def document_of(texts: list[str | None] | pa.Array) -> dict:
    """The scores of the document; all but the hashes are numbers, and no scorer fails."""
    scores = score_documents(rows(texts), SETTINGS)
    assert scores["score_error"].null_count == scores.num_rows == len(texts) + 1
    (found,) = scores.filter(pc.equal(scores["position"], -1)).to_pylist()
    assert all(value is not None for name, value in found.items() if name not in ("score_error", *HASHES))
    assert (found["text_hash"] is None) == (found["words"] == 0)
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a" * 200_000, 1),
        ("ab" * 100_000, 1),
        ("😀" * 50_000, 1),
        ("👩‍👩‍👧 " * 5_000, 5_000),
        ("\u202e\u2066abc\u2069\u202c \u200f\u200e", 2),
        ("नदी ποτάμι река 河流 نهر \u0e41\u0e21\u0e48", 6),
        ("\n" * 100_000, 0),
        (" \t\u2003" * 10_000, 0),
        ("." * 30_000, 1),
        ("\x00\x01 \x7f", 2),
        ("x@" * 20_000, 1),
        ("1." * 20_000, 1),
        ("a b " * 50_000, 100_000),
        ("\U0010ffff\ufffe \uffff", 2),
    ],
)
def test_texts_of_odd_characters(text: str, words: int) -> None:
    found = document_of([text])
    assert (found["words"], found["characters"]) == (words, len(text))


def test_a_text_that_repeats_itself_is_all_repetition() -> None:
    found = document_of(["buy it now and pay less " * 4_000])
    assert found["duplicate_5_gram"] > 0.74
    assert found["repeated_5_words"] == 1
    assert found["repeated_10_characters"] == pytest.approx(4 / 24, abs=0.001)  # 4 is the root of 24 kinds
    assert found["top_word"] == pytest.approx(1 / 6)


def test_bytes_that_are_no_utf_8() -> None:
    # Arrow checks none of this: a lone surrogate, a byte that begins nothing, a cut character
    contents = [b"one \xed\xa0\x80 two", b"\xff\xfe", b"cut \xe2\x82", b"good"]
    offsets = pa.array([0, 11, 13, 19, 23], pa.int32()).buffers()[1]
    texts = pa.StringArray.from_buffers(4, offsets, pa.py_buffer(b"".join(contents)))
    scores = score_documents(rows(texts), SETTINGS)
    assert scores["words"].to_pylist() == [7, 3, 1, 2, 1]
    assert scores["characters"].to_pylist()[1:] == [11, 2, 5, 4]


def test_many_rows_in_a_document() -> None:
    found = document_of(["short text"] * 20_000)
    assert (found["texts"], found["words"], found["longest_text"]) == (20_000, 40_000, 2)
    assert found["duplicate_lines"] == pytest.approx(19_999 / 20_000)


def test_rows_without_text() -> None:
    assert document_of([None, "", None])["words"] == 0


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.string_view()])
def test_strings_of_every_type_of_arrow(dtype: pa.DataType) -> None:
    assert document_of(pa.array(["one two", None, "three"], dtype))["words"] == 3


@pytest.mark.parametrize(
    ("measured", "error"),
    [
        (ValueError("no such thing\nat all"), "no such thing"),
        ([[1.0]], "it returned an array of 1 values for 2 rows"),
        ([[1.0, 2.0]] * 2, "it returned 2 values for the columns harm"),
    ],
)
def test_a_scorer_that_fails_leaves_the_others_their_scores(measured: object, error: str) -> None:
    def measure(batch: object) -> object:
        if isinstance(measured, ValueError):
            raise measured
        return measured

    broken = Scorer("broken", {"harm": "double"}, lambda _: measure, ranges={"harm": Range(0, 1)}, section="documents")
    register_scorer(broken)
    try:
        scores = score_documents(rows(["one two"]), DocumentSettings(scorers=("broken", "words")))
    finally:
        unregister_scorer("broken")
    assert scores["words"].to_pylist() == [2, 2]
    assert scores["harm"].to_pylist() == [None, None]
    assert scores["score_error"].to_pylist() == [f"scorer_failed: broken: ValueError: {error}"] * 2


def test_a_signal_that_ends_the_process_reaches_no_scorer() -> None:
    def measure(found: batch.TextBatch) -> list[list[float]]:
        return [[float(threading.current_thread() is threading.main_thread())] * found.keys.num_rows]

    register_scorer(Scorer("where", {"where": "double"}, lambda _: measure, section="documents"))
    try:
        scores = score_documents(rows(["one two"]), DocumentSettings(scorers=("where",)), threads=1)
    finally:
        unregister_scorer("where")
    assert scores["where"].to_pylist() == [0, 0]


LONG = ["aé " * 100, "B" * 2000, "C " * 300, "", "ñandú " * 50, "D e\n" * 260, "last"]
"""Texts of a document of which 1001 bytes are measured at once; the second and the third and sixth are cut."""


def test_of_a_very_long_document_the_words_are_counted_and_its_beginning_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(monkeypatch, scoring_of_texts, "MOST_DOCUMENT_BYTES", 1001)
    found = score_documents(rows(LONG), SETTINGS).to_pylist()
    counts = [len(text.split()) for text in LONG]
    assert [row["words"] for row in found] == [sum(counts), *counts]
    assert [row["characters"] for row in found] == [sum(map(len, LONG)) + 2 * (len(LONG) - 1), *map(len, LONG)]
    assert found[0]["upper_case"] == pytest.approx(601 / (300 + 601 + 2))
    assert found[0]["duplicate_lines"] == 0  # of the texts after its beginning it has no lines


@pytest.mark.parametrize("most", [7, 400, 1001, 2000, 2600])
def test_each_text_of_a_very_long_document_is_measured_as_if_it_were_alone(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a text that is longer than what is measured at once, the beginning."""
    stand_in(monkeypatch, scoring_of_texts, "MOST_DOCUMENT_BYTES", most)
    scores = score_documents(rows(LONG), SETTINGS)
    of_whole = {"words", "characters", "text_hash"}
    for text, row in zip(LONG, scores.to_pylist()[1:], strict=True):
        beginning = text.encode()[:most].decode("utf-8", "ignore")
        alone, whole = (score_documents(rows([one]), SETTINGS).to_pylist()[1] for one in (beginning, text))
        expected = {name: (whole if name in of_whole else alone)[name] for name in row}
        assert row == {**expected, "position": row["position"]}


def test_invalid_bytes_at_the_end_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, scoring_of_texts, "MOST_DOCUMENT_BYTES", 6)
    content = b"ab \x80\x80\x80\x80\x80\x80 c"
    offsets = pa.array([0, len(content)], pa.int32()).buffers()[1]
    text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(content))
    found = score_documents(rows(text), SETTINGS).to_pylist()
    assert [row["words"] for row in found] == [3, 3]
    assert [row["special_characters"] for row in found] == [pytest.approx(1 / 3)] * 2


def test_a_text_that_could_not_be_read_has_no_scores_but_its_reason() -> None:
    table = rows(["one two", None, None, "three"])
    table = table.append_column("materialize_error", pa.array([None, "missing_file: gone", None, "old: warned"]))
    scores = score_documents(table, SETTINGS).to_pylist()
    assert [row["score_error"] for row in scores] == [None, None, "missing_file: gone", None, None]
    assert [row["words"] for row in scores] == [3, 2, None, 0, 1]
    assert {value for name, value in scores[2].items() if name not in KEYS} == {None}


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_long_texts_are_split_in_pieces_without_a_difference(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["Aé  b\n\u2003ccc d", "   ", "ab" * 9, " x", "y ", "a\U0001f600 \tB"]
    whole = score_documents(rows(texts), SETTINGS)
    stand_in(monkeypatch, text_identity, "_PIECE", size)
    stand_in(monkeypatch, batch, "_LONG", size)
    assert score_documents(rows(texts), SETTINGS) == whole
    words = score_documents(rows(texts), DocumentSettings(scorers=("words",)))  # without the classes of characters
    assert words["words"] == whole["words"]


def test_the_arrays_of_a_batch_are_freed_when_it_is_scored() -> None:
    made: list[weakref.ref] = []

    def measure(one: batch.TextBatch) -> list:
        made.append(weakref.ref(one))
        return [one.with_totals(one.lengths)]

    register_scorer(Scorer("kept", {"kept": "int64"}, lambda _settings: measure, section="documents"))
    gc.disable()  # which would free a batch that refers to itself, at some time
    try:
        every = tuple(name for name in known_scorers("documents") if name != "language")
        score_documents(rows(["Some words, and more Words."]), DocumentSettings(scorers=every), threads=1)
        assert [one() for one in made] == [None]
    finally:
        gc.enable()
        unregister_scorer("kept")
