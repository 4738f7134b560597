"""The text scores against plain Python that follows their definitions, text by text."""

import math
import re
from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from interleaved_assets.scoring.protocol.registry import known_scorers
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.protocol.texts import score_documents
from interleaved_assets.scoring.texts import characters
from interleaved_assets.scoring.texts.lists import STOP_WORDS
from interleaved_assets_tests.scoring.texts.drawn import drawn_texts

SCORERS = tuple(name for name in known_scorers("documents") if name != "language")
SIZES = [1, 3, 0, 2, 5]
"""Texts of each document, again and again."""


def table(texts: list[str], sizes: list[int]) -> tuple[pa.Table, list[list[str]]]:
    """Rows of documents with so many texts each, and the texts of every row of scores."""
    rows, units, place, number = [], [], 0, 0
    while place < len(texts):
        mine = texts[place : place + sizes[number % len(sizes)]]
        rows.append((str(number), -1, "metadata", None))
        rows += [(str(number), position, "text", text) for position, text in enumerate(mine)]
        units += [mine, *([text] for text in mine)]
        place, number = place + len(mine), number + 1
    columns = zip(*rows, strict=True)
    types = (pa.string(), pa.int32(), pa.string(), pa.string())
    arrays = [pa.array(column, dtype) for column, dtype in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["sample_id", "position", "modality", "text_content"]), units


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return drawn_texts(400, seed=7)


@pytest.fixture(scope="module")
def scored(texts: list[str]) -> tuple[pa.Table, list[list[str]]]:
    rows, units = table(texts, SIZES)
    return score_documents(rows, DocumentSettings(scorers=SCORERS)), units


@cache
def is_of(character: str, name: int) -> bool:
    return bool(characters.class_table()[ord(character)] & name)


def plain_words(text: str) -> list[str]:
    words = []
    for word in text.split():
        places = [place for place, one in enumerate(word) if not is_of(one, characters.SPECIAL)]
        if places:
            core = word[places[0] : places[-1] + 1]
            words.append("".join(one.lower() if is_of(one, characters.UPPER) else one for one in core))
    return words


def repeated_words(words: list[str]) -> float:
    counts = Counter(tuple(words[place : place + 5]) for place in range(len(words) - 4))
    return sum(count for count in counts.values() if count > 1) / max(sum(counts.values()), 1)


def repeated_characters(text: str) -> float:
    counts = sorted(Counter(text[place : place + 10] for place in range(len(text) - 9)).values(), reverse=True)
    most = min(int(math.sqrt(len(counts))), sum(count > 1 for count in counts))
    return sum(counts[:most]) / max(sum(counts), 1)


def punctuation(text: str, position: int) -> float:
    """OBELICS' compute_punctuation_ratio with its marks; texts are judged from 12 parts on."""
    parts = re.findall(r"[\w']+|[,;:?!.]", text)
    if position >= 0 and 0 < len(parts) < 12:
        return 1.0
    return sum(part in ",;:?!." for part in parts) / max(len(parts), 1)


def nemotron(texts: list[str]) -> dict[str, float]:
    """The values that the text filters of NVIDIA's pipeline compare, by our columns; texts joined by a line feed."""
    text = "\n".join(texts)
    words, lines = re.findall(r"\S+", text), [line.strip() for line in text.splitlines() if line.strip()]
    lower = [word.lower() for word in words]
    found: dict[str, float] = {
        "symbols_per_word": sum(map(text.count, ("#", "…", "...", "&"))) / max(len(words), 1),
        "mean_length_of_all_words": sum(map(len, words)) / max(len(words), 1),
        "latin_letter_words": sum(bool(re.search("[A-Za-z]", word)) for word in words) / max(len(words), 1),
        "bulleted_lines": sum(line.startswith(tuple("-*•·‣▪◦–—")) for line in lines) / max(len(lines), 1),
        "cut_lines": sum(line.endswith(("…", "...")) for line in lines) / max(len(lines), 1),
        "same_lines": 1 - len(set(lines)) / len(lines) if lines else 0,
        "stop_words_in_any_case": len({"the", "be", "to", "of", "and", "that", "have", "with"} & set(lower)),
        "top_word": max(Counter(lower).values(), default=0) / max(len(words), 1),
    }
    for size in (2, 3, 4):
        grams = Counter(tuple(words[at : at + size]) for at in range(len(words) - size + 1))
        found[f"top_{size}_gram_words"] = max(grams.values(), default=0) * size / max(len(words), 1)
    return found


def blank_runs(texts: list[str]) -> float:
    """The same of its filter of line breaks, without the breaks that joining texts makes."""
    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    return sum(len(re.findall(r"\n{3,}", text)) for text in texts) / max(lines, 1)


def share(text: str, name: int) -> float:
    return sum(is_of(one, name) for one in text) / max(len(text), 1)


def expected(texts: list[str], position: int) -> dict[str, float]:
    text = "\n\n".join(texts)
    words = plain_words(text)
    return {
        **(nemotron(texts) if position < 0 else {}),
        "blank_runs": blank_runs(texts),
        "plain_words": len(words),
        "words": len(text.split()),
        "characters": len(text),
        "upper_case": share(text, characters.UPPER),
        "digits": share(text, characters.DIGIT),
        "special_characters": share(text, characters.SPECIAL),
        "curly_braces": text.count("{"),
        "lorem_ipsum": text.lower().count("lorem ipsum"),
        "punctuation": punctuation(text, position),
        "stop_word_share": sum(word in STOP_WORDS for word in words) / max(len(words), 1),
        "flagged_words": 0,
        "repeated_5_words": repeated_words(words),
        "repeated_10_characters": repeated_characters(text),
        "stop_words": len({"the", "be", "to", "of", "and", "that", "have", "with"} & set(text.split())),
    }


def test_every_row_has_the_values_of_the_definitions(scored: tuple[pa.Table, list[list[str]]]) -> None:
    scores, units = scored
    found = scores.to_pylist()
    assert len(found) == len(units)
    for row, texts in zip(found, units, strict=True):
        values = expected(texts, row["position"])
        assert {name: row[name] for name in values} == pytest.approx(values, abs=1e-12), repr(texts)
        assert row["score_error"] is None


def test_documents_do_not_depend_on_their_neighbours_or_on_threads(
    texts: list[str], scored: tuple[pa.Table, list[list[str]]]
) -> None:
    scores, _ = scored
    rows, _ = table(texts, SIZES)
    settings = DocumentSettings(scorers=SCORERS)
    ids = rows["sample_id"].unique().to_pylist()[:60]
    alone = [score_documents(rows.filter(pc.equal(rows["sample_id"], one)), settings) for one in ids]
    assert pa.concat_tables(alone).combine_chunks() == scores.slice(0, sum(map(len, alone))).combine_chunks()
    assert score_documents(rows, settings, threads=4) == scores


def test_the_classes_of_characters() -> None:
    table = characters.class_table()
    codes = np.array([*range(0xD800), *range(0xE000, 0x110000)])
    every = [*map(chr, codes)]
    for name, holds in {
        characters.WHITE: str.isspace,
        characters.LETTER: str.isalpha,
        characters.DIGIT: str.isdecimal,
        characters.LINE_END: lambda one: len(f"a{one}b".splitlines()) == 2,
    }.items():
        wrong = codes[(table[codes] & name != 0) != np.fromiter(map(holds, every), bool)]
        assert wrong.tolist() == [], name
