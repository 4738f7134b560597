import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.scoring.scores.ratio import count_words, image_text_ratio


def test_words_split_on_white_space():
    texts = pa.array(["one", " two\twords\n", "", "   ", None, "a\u00a0b\u2003c", "x,y"])
    assert count_words(texts).to_pylist() == [1, 2, 0, 0, None, 3, 1]
    assert count_words(texts).type == pa.int64()


@given(st.lists(st.none() | st.text()))
def test_words_as_python_counts_them(texts):
    expected = [None if text is None else len(text.split()) for text in texts]
    assert count_words(pa.chunked_array([pa.array(texts, pa.large_string())])).to_pylist() == expected


def test_ratio_of_images_to_words():
    ratio = image_text_ratio(np.array([3, 2, 0, 0]), np.array([6, 0, 5, 0]))
    assert ratio.tolist() == [0.5, 2.0, 0.0, 0.0]
    assert ratio.dtype == np.float64
