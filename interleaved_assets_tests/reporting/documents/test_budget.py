"""Pages stay small whatever the documents are: measured on the pages themselves."""

import functools
from collections.abc import Sequence

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.reporting.documents import budget
from interleaved_assets.reporting.documents.budget import SHORTEST_TEXT, fair_cap, fit_documents
from interleaved_assets.reporting.documents.document import Drop, Score, ShownDocument, ShownRow
from interleaved_assets.reporting.documents.html import documents_html
from interleaved_assets.reporting.documents.pages import DocumentPage
from interleaved_assets_tests.defects import stand_in

SCORES = tuple(
    Score(f"score_{number}", f"score {number}", 0.1, True, "rule: keep ≥ 0.05", "0.1") for number in range(6)
)
DROP = Drop("filtered", "sharpness_256_below", 4.5, "keep ≥ 100", "", 100.0)


@pytest.fixture(autouse=True)
def equal_pictures_made_smaller_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encode each of the few pictures here once for each size, and not for all of the hundreds of rows that show it."""
    stand_in(monkeypatch, budget, "smaller_thumbnail", functools.cache(budget.smaller_thumbnail))


def picture(side: int, ending: str) -> bytes:
    pixels = np.random.default_rng(side).integers(0, 256, (side // 8, side // 8, 3), np.uint8)
    return cv2.imencode(ending, cv2.resize(pixels, (side, side)))[1].tobytes()


THUMBNAIL, PREVIEW = picture(128, ".jpg"), picture(320, ".webp")


def images(count: int, data: bytes, drop: Drop | None = None) -> list[ShownRow]:
    return [
        ShownRow(2 * n, "image", name=f"doc.{n}.png", size="400×300", picture=data, scores=SCORES, drop=drop)
        for n in range(count)
    ]


def page_bytes(documents: Sequence[ShownDocument]) -> int:
    return len(documents_html(DocumentPage("shard", documents, "how")).encode())


def shard(count: int, items: Sequence[ShownRow]) -> list[ShownDocument]:
    fields = {"url": "https://example.org/" + "x" * 4000}
    return [ShownDocument(f"doc-{number:04d}", tuple(items), fields, SCORES) for number in range(count)]


def test_200_usual_documents_are_below_5_mb() -> None:
    documents = shard(200, [*images(4, THUMBNAIL), ShownRow(1, "text", "word " * 600)])
    page = documents_html(DocumentPage("shard", documents, "how"))
    assert len(page.encode()) < 5_000_000
    assert page.count("<img ") == 800


@pytest.mark.parametrize(
    "items",
    [
        [*images(4, PREVIEW), ShownRow(1, "text", "word " * 100)],
        [ShownRow(n, "text", "<b>&\"' 漢字 " * 2000) for n in range(4)],
        [ShownRow(n, "text", "\x00" * 900 + "a\n\nb\n\n" * 90) for n in range(20)],
        images(100, THUMBNAIL, DROP),
    ],
    ids=["previews", "long", "lines", "dropped"],
)
def test_unusual_documents_take_no_more(items: list[ShownRow]) -> None:
    fitted = fit_documents(shard(4, items), page_bytes=90_000)
    assert page_bytes(fitted) < 100_000
    assert all(document.items for document in fitted)


def test_pictures_are_drawn_for_rows_that_may_fit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bytes] = []
    stand_in(monkeypatch, budget, "smaller_thumbnail", lambda data, side=64: drawn.append(data) or data[:600])
    items = [*images(500, THUMBNAIL), *images(1, PREVIEW, DROP)]
    [fitted] = fit_documents([ShownDocument("a", tuple(items), {})], page_bytes=20_000)
    assert [item.picture for item in fitted.items if item.drop] == [PREVIEW[:600]]
    assert 0 < len(fitted.items) < len(drawn) / 3 < 20


def test_a_page_with_room_is_left_as_it_is() -> None:
    documents = [ShownDocument("a", (*images(3, PREVIEW), ShownRow(1, "text", "x" * 100_000)), {})]
    assert fit_documents(documents) == documents


def test_texts_are_cut_before_rows_and_say_how_long_they_are() -> None:
    documents = [
        ShownDocument(str(n), (ShownRow(0, "text", "x" * (10 if n else 90_000)), *images(1, THUMBNAIL)), {})
        for n in range(4)
    ]
    fitted = fit_documents(documents, page_bytes=60_000)
    text = fitted[0].items[0]
    assert (text.cut, len(text.text or "") >= SHORTEST_TEXT) == (90_000, True)
    assert all(document.left_out == 0 for document in fitted)
    assert [document.items[0].cut for document in fitted[1:]] == [0, 0, 0]
    assert "more of 90,000 characters" in documents_html(DocumentPage("s", fitted, ""))


def test_dropped_rows_are_the_last_to_be_left_out() -> None:
    items = (*(ShownRow(n, "text", "x" * 200) for n in range(400)), ShownRow(400, "text", "gone", drop=DROP))
    [fitted] = fit_documents([ShownDocument("a", items, {})], page_bytes=20_000)
    assert fitted.left_out == 401 - len(fitted.items) > 300
    assert fitted.items[-1].drop == DROP
    assert [item.position for item in fitted.items[:-1]] == list(range(len(fitted.items) - 1))


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(1, 5000))
def test_the_fair_cap_uses_the_room(sizes: list[int], room: int) -> None:
    cap = fair_cap(sizes, room)
    taken = sum(min(size, cap) for size in sizes)
    assert taken <= room + 1e-6
    assert taken == pytest.approx(min(room, sum(sizes)))
