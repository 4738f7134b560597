"""The decisions of datatrove's filters, by its own code, against bounds on the stored scores, on drawn texts.

``benchmarks.text_oracle`` compares them on real texts.
"""

from collections import Counter
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks.datatrove_filters import RULES, ours, scores_of, theirs
from interleaved_assets_tests.scoring.texts.drawn import drawn_texts

pytestmark = pytest.mark.skipif(find_spec("datatrove") is None, reason="datatrove, of the extra dev, is not installed")


@cache
def texts() -> list[str]:
    return drawn_texts(2400)


@pytest.fixture(scope="module")
def scores() -> dict[str, np.ndarray]:
    return scores_of(texts())


def decisions(name: str, scores: dict[str, np.ndarray]) -> list[tuple[str, str, str]]:
    """Each text with the reasons for which datatrove and the bounds drop it."""
    rules = RULES[name]
    return list(
        zip(texts(), theirs(texts(), rules.filter_class, rules.options), ours(scores, rules.bounds), strict=True)
    )


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("Gopher repetition", ["", "dup_line_frac", "top_2_gram", "duplicated_5_n_grams"]),
        ("FineWeb", ["", "list_ratio", "char_dup_ratio", "short_line_ratio"]),
    ],
)
def test_the_same_reason_for_every_text(name: str, reasons: list[str], scores: dict[str, np.ndarray]) -> None:
    found = decisions(name, scores)
    assert [one for one in found if one[1] != one[2]] == []
    said = Counter(one for _, one, _ in found)
    assert min(said[reason] for reason in reasons) > 20


def test_gopher_quality(scores: dict[str, np.ndarray]) -> None:
    found = decisions("Gopher quality", scores)
    assert [one for one in found if bool(one[1]) != bool(one[2])] == []
    # the mean length of no words is not a number there, and 0 here: another rule drops such a text
    wrong = [text for text, one, other in found if one != other]
    # §, → and … alone are words of letters there, since its list of punctuation lacks them
    assert [text for text in wrong if any(map(str.isalnum, text)) and "§" not in text] == []
    assert len(wrong) <= 100
    said = Counter(one for _, one, _ in found)
    assert min(said[reason] for reason in ("", "gopher_too_many_bullets", "gopher_too_many_ellipsis")) > 20


def test_gopher_numbers_of_words(scores: dict[str, np.ndarray]) -> None:
    wrong = {text for text, one, other in decisions("Gopher number of words", scores) if one != other}
    # words without a letter or digit count here, as they do for str.split, and not in datatrove
    for text in wrong:
        assert any(not any(map(str.isalnum, word)) for word in text.split()), text
    assert 0 < len(wrong) < 40


def test_c4(scores: dict[str, np.ndarray]) -> None:
    """Its rules on whole documents; the others drop lines, and need sentences."""
    found = decisions("C4, rules on whole documents", scores)
    assert [one for one in found if bool(one[1]) != bool(one[2])] == []
    said = Counter(one for _, one, _ in found)
    assert min(said[reason] for reason in ("", "curly_bracket", "lorem_ipsum")) > 10
