import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("open_clip")
import torch

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.embed import Embedder, Launched
from interleaved_assets.scoring.clip.heads import load_head
from interleaved_assets.scoring.clip.model import ClipModel, load_clip
from interleaved_assets.scoring.clip.settings import HeadSettings
from interleaved_assets.scoring.clip.text import Tokenizer
from interleaved_assets_tests.scoring.clip_tiny import CONTEXT, SIDE, WIDTH, write_tiny

pytestmark = pytest.mark.torch

TEXTS = ["hello", "a red square beside two blue circles", "many words " * 40, "x", "the quick brown fox jumps over it"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ClipModel:
    return load_clip(write_tiny(tmp_path_factory.mktemp("tiny")))


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def tokens(model: ClipModel) -> list[np.ndarray]:
    tokenizer = Tokenizer(model.tokenizer, "window")
    return [window for text in TEXTS for window in tokenizer(text)]


def test_text_embeddings_are_open_clips_own_although_padding_is_left_out(model: ClipModel) -> None:
    wanted = model.module.encode_text(model.tokenizer(TEXTS), normalize=True).detach().numpy()
    truncated = [Tokenizer(model.tokenizer, "truncate")(text)[0] for text in TEXTS]
    found = Embedder(model, 2).texts(truncated).result()
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() < 1e-6


def test_padding_is_left_out_where_it_may_be_and_only_there(model: ClipModel, monkeypatch: pytest.MonkeyPatch) -> None:
    short = [np.array([49406, 320, 49407], np.int32)]
    seen = []
    forward = model.module.transformer.forward
    monkeypatch.setattr(
        model.module.transformer, "forward", lambda x, **rest: seen.append(x.shape[1]) or forward(x, **rest)
    )
    trimmed = Embedder(model).texts(short).result()
    monkeypatch.setattr(model.module, "text_pool_type", "last")
    Embedder(model).texts(short).result()
    assert seen == [3, CONTEXT]
    assert trimmed.shape == (1, WIDTH)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_embeddings_have_length_1_and_do_not_depend_on_the_batch(model: ClipModel, batch_size: int) -> None:
    one, many = Embedder(model, 1), Embedder(model, batch_size)
    images = pixels(7)
    for found, wanted in (
        (many.images(images).result(), np.concatenate([one.images(image[None]).result() for image in images])),
        (many.texts(tokens(model)).result(), np.concatenate([one.texts([each]).result() for each in tokens(model)])),
    ):
        assert found.shape == wanted.shape
        assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-6
        assert np.abs(found - wanted).max() < 1e-6


def test_the_default_batch_is_the_devices(model: ClipModel) -> None:
    assert Embedder(model).batch_size == 32
    assert Embedder(replace(model, device=torch.device("cpu")), 5).batch_size == 5


class Short:
    """A module on a device with room for a few items only."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.given: list[int] = []

    def encode_image(self, batch: torch.Tensor) -> torch.Tensor:
        self.given.append(len(batch))
        if len(batch) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return batch.mean(dim=(2, 3))

    encode_text = encode_image


def on_short(model: ClipModel, room: int) -> ClipModel:
    return replace(model, module=Short(room), tokenizer=SimpleNamespace(context_length=CONTEXT), width=3)


def test_out_of_memory_halves_the_batch_goes_on_and_says_so(model: ClipModel, caplog: pytest.LogCaptureFixture) -> None:
    short = on_short(model, 3)
    embedder = Embedder(short, 16)
    images = pixels(20)
    with caplog.at_level(logging.WARNING):
        found = embedder.images(images).result()
    assert short.module.given == [16, 8, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    assert embedder.batch_size == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"out of memory on cpu with a batch of {size}: going on with {size // 2}. Set clip.batch_size to {size // 2} "
        "to start there."
        for size in (16, 8, 4)
    ]
    assert np.allclose(found, Embedder(on_short(model, 100), 32).images(images).result(), atol=1e-6)
    # and stays there
    embedder.images(images[:4]).result()
    assert short.module.given[-2:] == [2, 2]


def test_out_of_memory_with_a_single_image_is_an_error(model: ClipModel) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        Embedder(on_short(model, 0), 4).images(pixels(4))


def test_values_that_are_not_finite_are_an_error_and_no_score(model: ClipModel) -> None:
    class Overflowing:
        def encode_image(self, batch: torch.Tensor) -> torch.Tensor:
            return torch.full((len(batch), 3), torch.inf)

    broken = replace(model, module=Overflowing(), precision="fp16")
    with pytest.raises(SettingsError, match=r"clip.precision: .* not finite in fp16; choose 'bf16' or 'fp32'"):
        Embedder(broken, 4).images(pixels(2)).result()


def test_heads_score_a_whole_batch_on_the_device(model: ClipModel, tmp_path: Path) -> None:
    heads = []
    for name in ("one", "two"):
        torch.save({"fc.weight": torch.randn(1, WIDTH), "fc.bias": torch.ones(1)}, tmp_path / f"{name}.pth")
        heads.append(load_head(name, HeadSettings(path=str(tmp_path / f"{name}.pth"), output="sigmoid"), WIDTH))
    images = pixels(7)
    plain = Embedder(model).images(images).result()
    found = Embedder(model, 4, heads).images(images).result()
    assert found.shape == (7, WIDTH + 2)
    assert np.abs(found[:, :WIDTH] - plain).max() < 1e-6
    for column, head in enumerate(heads):
        wanted = head(torch.from_numpy(plain))[:, 0].numpy()
        assert np.abs(found[:, WIDTH + column] - wanted).max() < 1e-6
        assert np.ptp(wanted) > 0.01


def test_a_pixel_buffer_has_room_for_a_batch(model: ClipModel) -> None:
    embedder = Embedder(model, 5)
    buffer = embedder.pixel_buffer()
    assert (buffer.shape, buffer.dtype) == ((5, SIDE, SIDE, 3), np.uint8)
    buffer[:3] = pixels(3)
    assert np.array_equal(embedder.images(buffer[:3]).result(), embedder.images(pixels(3)).result())


class OnDevice:
    """Stands for rows on a GPU, and notes what the host asks of it and when."""

    is_cuda, shape, dtype, device = True, (2, 3), torch.float32, torch.device("cuda", 0)


class Host:
    def __init__(self, log: list[str], *, pin_memory: bool) -> None:
        self._log = log
        log.append("pinned memory" if pin_memory else "memory")

    def copy_(self, rows: OnDevice, *, non_blocking: bool) -> None:
        self._log.append("copy enqueued" if non_blocking and rows.is_cuda else "copied")

    def numpy(self) -> np.ndarray:
        self._log.append("read")
        return np.ones((2, 3), np.float32)


class Event:
    def __init__(self, log: list[str], *, blocking: bool) -> None:
        self._log, self._kind = log, "sleeping" if blocking else "spinning"

    def record(self, stream: str) -> None:
        self._log.append(f"event behind it in {stream}")

    def synchronize(self) -> None:
        self._log.append(f"waited {self._kind}")


def test_the_copy_to_the_host_is_enqueued_with_the_batch_and_waited_for_when_the_result_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    monkeypatch.setattr(torch, "empty", lambda _shape, *, dtype, pin_memory: Host(log, pin_memory=pin_memory))
    monkeypatch.setattr(torch.cuda, "Event", lambda *, blocking: Event(log, blocking=blocking))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the stream of {device}")
    launched = Launched(OnDevice(), "bf16")
    assert log == ["pinned memory", "copy enqueued", "event behind it in the stream of cuda:0"]
    launched.result()
    assert log[3:] == ["waited sleeping", "read"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_reads_page_locked_memory_and_gives_what_the_cpu_gives(model: ClipModel, tmp_path: Path) -> None:
    on_gpu = load_clip(write_tiny(tmp_path).model_copy(update={"device": "cuda", "precision": "fp32"}))
    embedder = Embedder(on_gpu, 4)
    buffer = embedder.pixel_buffer()
    assert torch.from_numpy(buffer).is_pinned()
    buffer[:] = pixels(4)
    assert np.abs(embedder.images(buffer).result() - Embedder(model).images(pixels(4)).result()).max() < 1e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_gpu_embeds_texts_in_half_precision_as_the_cpu_does_in_fp32(precision: str, tmp_path: Path) -> None:
    settings = write_tiny(tmp_path)
    texts = [np.array([49406, *range(300, 310), 49407], np.int32), np.array([49406, 320, 49407], np.int32)]
    exact = Embedder(load_clip(settings)).texts(texts).result()
    on_gpu = load_clip(settings.model_copy(update={"device": "cuda", "precision": precision}))
    found = Embedder(on_gpu).texts(texts).result()
    assert 0 < np.abs(found - exact).max() < 1e-2


def test_half_precision_computes_in_half_precision(tmp_path: Path) -> None:
    settings = write_tiny(tmp_path)
    exact = Embedder(load_clip(settings)).images(pixels(4)).result()
    half = load_clip(settings.model_copy(update={"precision": "bf16"}))
    found = Embedder(half).images(pixels(4)).result()
    assert found.dtype == np.float32
    difference = np.abs(found - exact).max()
    assert 1e-5 < difference < 0.01
