import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.clip.scorer import ClipScorer
from interleaved_assets.scoring.clip.settings import ClipSettings, HeadSettings, PrescreenSettings
from interleaved_assets.scoring.clip.stream import ClipStats, ImageScores, ScoreStream
from interleaved_assets.scoring.images.containers import Buffer

WIDTH = 4
LENGTH = 16
"""Bytes of an image's pixels: its content, filled up with zeros."""
PATIENCE = 60
"""Seconds until something that has to happen counts as not happening."""


def vector(content: bytes) -> np.ndarray:
    """A unit vector that depends on the content alone."""
    values = np.random.default_rng(list(content)).normal(size=WIDTH).astype(np.float32)
    return values / np.linalg.norm(values)


class Ready:
    def __init__(self, vectors: np.ndarray) -> None:
        self._vectors = vectors

    def result(self) -> np.ndarray:
        return self._vectors


class Model:
    """Stands for a model: remembers what it was given; pixels and tokens are the content's bytes."""

    width = WIDTH

    def __init__(self, batch_size: int = 4, fails_at: int | None = None, heads: int = 0) -> None:
        self.batch_size, self.fails_at, self.is_on_cpu, self.heads = batch_size, fails_at, False, heads
        self.images_given: list[list[bytes]] = []
        self.texts_given: list[list[bytes]] = []
        self.buffers = 0

    def pixel_buffer(self) -> np.ndarray:
        self.buffers += 1
        return np.zeros((self.batch_size, LENGTH), np.uint8)

    def images(self, pixels: np.ndarray) -> Ready:
        if len(self.images_given) == self.fails_at:
            raise RuntimeError("CUDA error: unspecified launch failure")
        self.images_given.append([array.tobytes().rstrip(b"\0") for array in pixels])
        vectors = np.stack([vector(content) for content in self.images_given[-1]])
        return Ready(np.hstack([vectors, *[vectors.sum(axis=1, keepdims=True)] * self.heads]))

    def texts(self, tokens: Sequence[np.ndarray]) -> Ready:
        self.texts_given.append([bytes(array.astype(np.uint8)) for array in tokens])
        return Ready(np.stack([vector(bytes(array.astype(np.uint8))) for array in tokens]))


def decode(data: Buffer) -> np.ndarray:
    content = bytes(data)
    if content.startswith(b"bad"):
        raise ImageError("undecodable_image: bad")
    return np.frombuffer(content.ljust(LENGTH, b"\0"), np.uint8)


def tokens(text: str) -> list[np.ndarray]:
    return [np.frombuffer(text.encode(), np.uint8).astype(np.int32)]


def table(*items: tuple[str, int, str | bytes]) -> pa.Table:
    """Rows of (sample id, position, content); bytes are an image, a string is a text."""
    texts = [item[2] if isinstance(item[2], str) else None for item in items]
    images = [item[2] if isinstance(item[2], bytes) else None for item in items]
    return pa.table(
        {
            "sample_id": pa.array([item[0] for item in items], pa.string()),
            "position": pa.array([item[1] for item in items], pa.int32()),
            "modality": pa.array(["image" if text is None else "text" for text in texts], pa.string()),
            "text_content": pa.array(texts, pa.string()),
            "binary_content": pa.array(images, pa.large_binary()),
        }
    )


def stream(
    model: Model,
    settings: ClipSettings | None = None,
    *,
    image_scores: ImageScores | None = None,
    preprocess: Callable[[Buffer], np.ndarray] = decode,
    threads: int = 2,
    stats: ClipStats | None = None,
) -> ScoreStream:
    settings = (settings or ClipSettings()).model_copy(update={"threads": threads})
    model.heads = len(settings.heads)
    return ScoreStream(ClipScorer(settings, model, tokens, preprocess), image_scores, stats or ClipStats())


def shard(name: str, count: int) -> tuple[str, list[pa.Table]]:
    """A shard of samples with one image and one text each, two to a table."""
    samples = [
        ((f"{name}{number}", 0, f"text {number}"), (f"{name}{number}", 1, b"%d" % number)) for number in range(count)
    ]
    return name, [table(*(row for sample in samples[at : at + 2] for row in sample)) for at in range(0, count, 2)]


def expected(count: int) -> list[float]:
    return [
        pytest.approx(float(vector(b"%d" % number) @ vector(b"text %d" % number)), abs=1e-6) for number in range(count)
    ]


def test_images_are_batched_across_samples_and_shards_and_shards_come_in_order() -> None:
    model = Model(batch_size=4)
    found = list(stream(model).run([shard("a", 3), shard("b", 2), ("none", []), shard("c", 6)]))
    assert [name for name, _ in found] == ["a", "b", "none", "c"]
    assert [len(batch) for batch in model.images_given] == [4, 4, 3]
    assert model.images_given[0] == [b"0", b"1", b"2", b"0"]
    for (_, scores), count in zip(found, (3, 2, 0, 6), strict=True):
        assert scores["clip_score"].to_pylist() == expected(count)
        assert scores["clip_text_position"].to_pylist() == [0] * count


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_the_batch_size_changes_no_score(batch_size: int) -> None:
    shards = [shard("a", 5), shard("b", 7)]
    found = dict(stream(Model(batch_size)).run(shards))
    for name, scores in stream(Model(4)).run(shards):
        assert scores.equals(found[name])


def test_a_text_is_embedded_once_however_many_samples_have_it() -> None:
    model = Model(batch_size=2)
    rows = [(f"s{number}", at, content) for number in range(40) for at, content in enumerate(("same", b"%d" % number))]
    stats = ClipStats()
    found = list(stream(model, stats=stats).run([("a", [table(*rows)]), ("b", [table(*rows)])]))
    assert [text for batch in model.texts_given for text in batch] == [b"same"]
    assert (stats.texts, stats.embedded) == (1, 80)
    assert found[0][1].equals(found[1][1])


def test_texts_of_a_sample_are_not_embedded_where_none_of_its_images_will_be() -> None:
    model = Model()
    errors = table(("a", 0, "unneeded"), ("a", 1, b"x")).append_column(
        "materialize_error", pa.array([None, "short_read: 3 of 5 bytes"])
    )
    ((_, scores),) = stream(model).run([("a", [errors])])
    assert (model.images_given, model.texts_given) == ([], [])
    assert scores["clip_error"].to_pylist() == ["short_read: 3 of 5 bytes"]


def test_an_undecodable_image_is_the_only_one_that_suffers() -> None:
    model = Model(batch_size=2)
    rows = [("a", 0, "text"), ("a", 1, b"bad"), ("a", 2, b"good"), ("b", 0, b"bad"), ("b", 1, "text")]
    ((_, scores),) = stream(model).run([("a", [table(*rows)])])
    assert scores["clip_error"].to_pylist() == ["undecodable_image: bad", None, "undecodable_image: bad"]
    assert [score is None for score in scores["clip_score"].to_pylist()] == [True, False, True]


def test_images_of_a_sample_without_text_are_embedded_only_where_a_head_or_the_embedding_is_wanted() -> None:
    rows = table(("a", 0, b"picture"), ("a", 1, " \n"))
    model = Model()
    ((_, scores),) = stream(model).run([("a", [rows])])
    assert model.images_given == []
    assert scores["clip_error"][0].as_py().startswith("no_text: ")

    for settings in (ClipSettings(heads={"total": HeadSettings(path="x")}), ClipSettings(keep_embeddings=True)):
        ((_, scores),) = stream(model, settings).run([("a", [rows])])
        assert scores["clip_error"][0].as_py().startswith("no_text: ")
        assert scores["clip_score"].null_count == 1
    assert scores["embedding"][0].as_py() == pytest.approx(vector(b"picture"), abs=1e-3)
    assert model.images_given == [[b"picture"], [b"picture"]]


def test_an_undecodable_image_of_a_sample_without_text_says_that_it_is_undecodable() -> None:
    model = Model()
    ((_, scores),) = stream(model).run([("a", [table(("a", 0, b"bad"), ("a", 1, b"good"))])])
    assert model.images_given == []
    assert scores["clip_error"].to_pylist() == [
        "undecodable_image: bad",
        "no_text: no text row of the sample has any characters but white space",
    ]


def test_a_sample_of_500_images() -> None:
    model = Model(batch_size=64)
    rows = [("a", 0, "text"), *(("a", number + 1, b"%d" % number) for number in range(500))]
    ((_, scores),) = stream(model).run([("a", [table(*rows)])])
    assert scores["position"].to_pylist() == list(range(1, 501))
    assert scores["clip_score"].null_count == 0
    assert [len(batch) for batch in model.images_given] == [64] * 7 + [52]


def test_a_prescreened_image_is_not_given_to_the_model_and_says_so() -> None:
    cheap = pa.table(
        {"sample_id": ["a", "a"], "position": pa.array([1, 2], pa.int32()), "sharpness": pa.array([5.0, 500.0])}
    )
    model = Model()
    settings = ClipSettings(prescreen=PrescreenSettings(min_sharpness=100))
    asked: list[str] = []

    def image_scores(name: str) -> pa.Table:
        asked.append(name)
        return cheap

    rows = table(("a", 0, "text"), ("a", 1, b"blurred"), ("a", 2, b"sharp"))
    ((_, scores),) = stream(model, settings, image_scores=image_scores).run([("shard 1", [rows])])
    assert asked == ["shard 1"]
    assert model.images_given == [[b"sharp"]]
    assert scores["clip_error"].to_pylist() == [
        "prescreened: sharpness 5 is below clip.prescreen.min_sharpness 100",
        None,
    ]
    ((_, unscreened),) = stream(Model()).run([("shard 1", [rows])])
    assert scores["clip_score"][1].as_py() == pytest.approx(unscreened["clip_score"][1].as_py(), abs=1e-6)


def test_a_device_that_fails_leaves_the_shards_before_it_and_marks_no_image() -> None:
    run = stream(Model(batch_size=4, fails_at=3)).run([shard("a", 4), shard("b", 4), shard("c", 8)])
    for name in ("a", "b"):
        done, scores = next(run)
        assert (done, scores["clip_error"].null_count) == (name, 4)
    with pytest.raises(RuntimeError, match="unspecified launch failure") as caught:
        next(run)
    assert "while CLIP embedded c; no image was marked" in caught.value.__notes__[0]
    deadline = time.monotonic() + PATIENCE
    while any(thread.name.startswith(("clip-decode", "prefetch")) for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_error_of_the_reader_comes_through() -> None:
    def tables() -> Iterator[pa.Table]:
        yield shard("a", 2)[1][0]
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        list(stream(Model()).run([("a", tables())]))


def test_a_shard_comes_before_the_shards_behind_it_are_read_to_their_end() -> None:
    read = 0

    def shards() -> Iterator[tuple[str, list[pa.Table]]]:
        nonlocal read
        for number in range(200):
            read += 1
            yield shard(str(number), 4)

    run = stream(Model(batch_size=4)).run(shards())
    assert next(run)[0] == "0"
    assert read < 10
    run.close()


def test_no_more_images_are_decoded_ahead_than_two_batches() -> None:
    ahead = 0
    most = 0
    lock = threading.Lock()
    two_batches = threading.Event()

    def counted(data: Buffer) -> np.ndarray:
        nonlocal ahead, most
        with lock:
            ahead += 1
            most = max(most, ahead)
            if ahead == 8 + 2 * 8:
                two_batches.set()
        return decode(data)

    class Waiting(Model):
        def images(self, pixels: np.ndarray) -> Ready:
            nonlocal ahead
            assert self.images_given or two_batches.wait(PATIENCE)
            with lock:
                ahead -= len(pixels)
            return super().images(pixels)

    rows = [("a", 0, "text"), *(("a", number + 1, b"%d" % number) for number in range(200))]
    list(stream(Waiting(batch_size=8), preprocess=counted).run([("a", [table(*rows)])]))
    assert most == 8 + 2 * 8


class Lazy(Model):
    """Reads its input as late as a device may, and notes the order of what is asked of it."""

    def __init__(self, batch_size: int) -> None:
        super().__init__(batch_size)
        self.log: list[str] = []

    def images(self, pixels: np.ndarray) -> "LazyResult":
        self.log.append("launch")
        return LazyResult(self, pixels)


class LazyResult:
    def __init__(self, model: Lazy, pixels: np.ndarray) -> None:
        self._model, self._pixels = model, pixels

    def result(self) -> np.ndarray:
        self._model.log.append("result")
        return Model.images(self._model, self._pixels).result()


def test_the_next_batch_is_launched_before_the_result_of_the_one_before_is_asked_for() -> None:
    model = Lazy(batch_size=4)
    list(stream(model).run([shard("a", 16)]))
    assert model.log == ["launch", "launch", "result", "launch", "result", "launch", "result", "result"]


def test_while_the_device_computes_the_next_table_is_read_and_its_images_are_decoded_and_launched() -> None:
    log: list[str] = []
    decoded = [threading.Event() for _ in range(3)]

    def tables() -> Iterator[pa.Table]:
        for number in range(3):
            log.append(f"table {number} read")
            yield table((f"s{number}", 0, "text"), (f"s{number}", 1, b"%d" % number))

    def noted(data: Buffer) -> np.ndarray:
        number = int(bytes(data))
        log.append(f"image {number} decoded")
        decoded[number].set()
        return decode(data)

    class Busy(Model):
        """Is done with a batch only once the image of the batch after it is decoded and launched."""

        def images(self, pixels: np.ndarray) -> "Done":
            number = len(self.images_given)
            log.append(f"batch {number} launched")
            return Done(number, super().images(pixels))

    class Done:
        def __init__(self, number: int, ready: Ready) -> None:
            self._number, self._ready = number, ready

        def result(self) -> np.ndarray:
            if self._number < 2:
                assert decoded[self._number + 1].wait(PATIENCE)
            log.append(f"batch {self._number} taken")
            return self._ready.result()

    ((_, scores),) = stream(Busy(batch_size=1), preprocess=noted).run([("a", tables())])
    assert scores["clip_score"].null_count == 0
    for number in range(2):
        before = log.index(f"batch {number} taken")
        for event in (f"table {number + 1} read", f"image {number + 1} decoded", f"batch {number + 1} launched"):
            assert log.index(event) < before, log


def test_buffers_are_used_again_and_not_before_the_device_has_read_them() -> None:
    model = Lazy(batch_size=4)
    ((_, scores),) = stream(model).run([shard("a", 160)])
    assert scores["clip_score"].to_pylist() == expected(160)
    # two ahead, one being filled, one next, one launched
    assert 2 <= model.buffers <= 5


def test_a_batch_with_undecodable_images_holds_the_others_alone() -> None:
    model = Model(batch_size=4)
    contents = [b"1", b"bad", b"3", b"bad", b"5"]
    rows = [("a", 0, "text"), *(("a", at + 1, content) for at, content in enumerate(contents))]
    ((_, scores),) = stream(model).run([("a", [table(*rows)])])
    assert model.images_given == [[b"1", b"3"], [b"5"]]
    assert [score is None for score in scores["clip_score"].to_pylist()] == [False, True, False, True, False]


def test_samples_without_images_to_embed_end_a_batch_too() -> None:
    met = []

    def tables() -> Iterator[pa.Table]:
        for number in range(200):
            met.append(number)
            yield table((f"s{number}", 0, "text"), (f"s{number}", 1, b"")).set_column(
                4, "binary_content", pa.nulls(2, pa.large_binary())
            )

    shards = [("first", [shard("a", 1)[1][0]]), ("second", tables())]
    run = stream(Model(batch_size=1)).run(shards)
    assert next(run)[0] == "first"
    # batches of 8 samples
    assert len(met) < 60
    run.close()


@pytest.mark.parametrize("is_on_cpu", [True, False])
def test_while_a_model_computes_on_the_cpu_nothing_is_decoded(is_on_cpu: bool) -> None:
    computing, waiting, decoding = threading.Event(), threading.Event(), threading.Event()

    def tables() -> Iterator[pa.Table]:
        yield table(("a", 0, "text"), *(("a", number + 1, b"%d" % number) for number in range(16)))
        assert computing.wait(PATIENCE)
        yield table(("b", 0, "text"), *(("b", number + 1, b"%d" % number) for number in range(16, 32)))
        waiting.set()

    class Watching(Model):
        decoded_meanwhile = False

        def images(self, pixels: np.ndarray) -> Ready:
            if not self.images_given:
                computing.set()
                assert waiting.wait(PATIENCE)
                # the images of b wait for a decoder that has nothing else to do: a moment would be enough for it
                self.decoded_meanwhile = decoding.wait(0.1 if self.is_on_cpu else PATIENCE)
            return super().images(pixels)

    def watched(data: Buffer) -> np.ndarray:
        if computing.is_set():
            decoding.set()
        return decode(data)

    model = Watching(batch_size=16)
    model.is_on_cpu = is_on_cpu
    list(stream(model, preprocess=watched, threads=1).run([("shard", tables())]))
    assert [len(batch) for batch in model.images_given] == [16, 16]
    assert model.decoded_meanwhile == (not is_on_cpu)


def test_texts_wait_for_others_of_like_length_and_are_embedded_together() -> None:
    model = Model(batch_size=2)
    rows = [
        row for number in range(20) for row in ((f"s{number}", 0, f"text {number}"), (f"s{number}", 1, b"%d" % number))
    ]
    list(stream(model).run([("a", [table(*rows)])]))
    assert [len(batch) for batch in model.texts_given] == [8, 8, 4]


def test_the_wait_for_decoded_images_counts_and_the_callers_work_does_not() -> None:
    def slow(data: Buffer) -> np.ndarray:
        time.sleep(0.05)
        return decode(data)

    stats = ClipStats()
    started = time.perf_counter()
    for _ in stream(Model(batch_size=1), preprocess=slow, threads=1, stats=stats).run([shard("a", 4)]):
        assert stats.waited_seconds > 3 * 0.05
        time.sleep(0.1)
    assert stats.waited_seconds < time.perf_counter() - started - 0.1


def test_the_same_input_gives_the_same_table() -> None:
    first, *others = (list(stream(Model(3)).run([shard("a", 9), shard("b", 4)])) for _ in range(4))
    for other in others:
        assert all(one.equals(two) for (_, one), (_, two) in zip(first, other, strict=True))
