import logging
import sys
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("open_clip")
import torch
from open_clip.transform import PreprocessCfg

from interleaved_assets.model.errors import ImageError, MissingDependency, SettingsError
from interleaved_assets.scoring.clip import device_jpeg
from interleaved_assets.scoring.clip.device_jpeg import DevicePreprocess
from interleaved_assets.scoring.clip.image import Preprocess
from interleaved_assets.scoring.clip.scorer import load_scorer
from interleaved_assets.scoring.clip.stream import score_table
from interleaved_assets_tests.scoring.clip_tiny import picture, plain_scores, rows, tiny_module, write_tiny

pytestmark = pytest.mark.torch

HOST = Preprocess(PreprocessCfg(size=32), "torch", max_pixels=100_000)
CPU = torch.device("cpu")


def jpeg(seed: int = 0, width: int = 90, height: int = 60, mode: str = "RGB", **options: object) -> bytes:
    buffer = BytesIO()
    Image.open(BytesIO(picture(seed, width, height, "PNG"))).convert(mode).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(orientation, exif=exif)


PLAIN = {
    **{f"subsampling {number}": jpeg(number, subsampling=number) for number in (0, 1, 2)},
    "progressive": jpeg(3, progressive=True),
    "grey": jpeg(4, mode="L"),
    "restarts": jpeg(5, restart_marker_blocks=4),
    "no scaling": jpeg(6, 32, 32),
    "upscaled": jpeg(7, 7, 5),
    "odd": jpeg(8, 91, 233),
    **{f"orientation {number}": turned(number) for number in range(1, 9)},
}
OTHER = {
    "CMYK": jpeg(1, mode="CMYK"),
    "RGB": jpeg(1, keep_rgb=True),
    "truncated": jpeg(1)[:-300],
    "truncated by its end": jpeg(1)[:-2],
    "huge": jpeg(1, 400, 300),
    "a strip": jpeg(1, 500, 12),
    "PNG": picture(1, image_format="PNG"),
    "empty": b"",
    "twelve bits": jpeg(1).replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c"),
    "arithmetic": jpeg(1).replace(b"\xff\xc0\x00\x11", b"\xff\xc9\x00\x11"),
    "RGB by Adobe": jpeg(1)[:2] + b"\xff\xee\x00\x0eAdobe" + bytes([0, 100, 0, 0, 0, 0, 0]) + jpeg(1)[2:],
    "RGB by its names": jpeg(1, subsampling=0).replace(b"\x01\x11\x00\x02\x11\x01\x03\x11", b"R\x11\0G\x11\1B\x11"),
    "odd subsampling": jpeg(1, subsampling=0).replace(b"\x01\x11\x00\x02", b"\x01\x14\x00\x02"),
    "no component": (grey := jpeg(1, mode="L"))[: (at := grey.index(b"\xff\xc0"))]
    + (b"\xff\xc0\0\x08" + grey[at + 4 : at + 10] + grey[at + 13 :]),
    "two grey frames": jpeg(1, mode="L").replace(
        b"\xff\xc0", jpeg(2, mode="L")[(at := jpeg(2, mode="L").index(b"\xff\xc0")) : at + 13] + b"\xff\xc0"
    ),
    "two frames": jpeg(1).replace(b"\xff\xc0", jpeg(2)[(at := jpeg(2).index(b"\xff\xc0")) : at + 19] + b"\xff\xc0"),
}


@pytest.fixture(scope="module")
def on_device() -> DevicePreprocess:
    return DevicePreprocess(HOST, CPU)


def test_plain_jpegs_are_decoded_turned_and_cropped_as_on_the_host(on_device: DevicePreprocess) -> None:
    for name, pixels in zip(PLAIN, on_device(list(PLAIN.values())), strict=True):
        assert pixels is not None, name
        assert (pixels.shape, pixels.dtype) == ((32, 32, 3), np.uint8)
        # two roundings of the same scaling; grey is scaled by Pillow on the host
        assert np.abs(pixels.astype(int) - HOST(PLAIN[name])).max() <= 2, name


def test_scaling_rounds_between_across_and_down_as_pillow_does(on_device: DevicePreprocess) -> None:
    pillow = Preprocess(HOST.config, "pillow")
    files = [jpeg(number, width, height) for number, (width, height) in enumerate([(300, 200), (170, 290), (40, 33)])]
    difference = np.abs(np.stack(on_device(files)).astype(int) - np.stack([pillow(file) for file in files]))
    assert difference.max() <= 1
    # rounded at the end only: a tenth
    assert (difference > 0).mean() < 0.01


def test_all_other_images_are_left_to_the_host(on_device: DevicePreprocess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_jpeg, "_decode", lambda *_: pytest.fail("given to the device"))
    assert dict(zip(OTHER, on_device(list(OTHER.values())), strict=True)) == dict.fromkeys(OTHER)


def test_scores_are_those_of_plain_open_clip_and_errors_those_without_the_option(tmp_path: Path) -> None:
    settings = write_tiny(tmp_path).model_copy(update={"resize": "torch", "max_pixels": 100_000})
    files = {**PLAIN, **OTHER, "damaged": jpeg(1).replace(b"\xff\xc4", b"\xff\xc5")}
    table = rows(
        *(row for name, data in files.items() for row in ((name, 0, "text", "a text"), (name, 1, "image", data)))
    )
    wanted = score_table(table, load_scorer(settings))
    found = score_table(table, load_scorer(settings.model_copy(update={"decode": "device"})))
    assert found["clip_error"].to_pylist() == wanted["clip_error"].to_pylist()
    module = tiny_module()
    for name, score in zip(files, found["clip_score"].to_pylist(), strict=True):
        if name in PLAIN and not name.startswith("orientation"):
            assert score == pytest.approx(plain_scores(module, files[name], ["a text"])[0], abs=2e-2), name


def test_damaged_jpegs_become_errors_of_their_rows_and_no_others(on_device: DevicePreprocess) -> None:
    random = np.random.default_rng(0)
    decoded = 0
    for number in range(150):
        data = bytearray(list(PLAIN.values())[number % 6])
        at = int(random.integers(2, len(data) - 2))
        match number % 3:
            case 0:
                data[at] = int(random.integers(256))
            case 1:
                data[at : at + 2] = bytes([0xFF, int(random.integers(256))])
            case 2:
                del data[at : at + int(random.integers(1, 60))]
        whole = jpeg(number % 4)
        found, beside = on_device([bytes(data), whole])
        assert beside is not None
        if found is not None:
            decoded += 1
            try:
                HOST(bytes(data))
            except ImageError as error:
                pytest.fail(f"case {number}: the host says {error}")
    assert decoded > 20


def test_a_refused_file_is_the_only_one_of_its_call_and_the_first_is_reported(
    on_device: DevicePreprocess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []
    decode = device_jpeg._decode
    bad = list(PLAIN.values())[1]

    def refusing(files: list[bytes], device: torch.device) -> list[torch.Tensor]:
        calls.append(len(files))
        if bad in files:
            raise RuntimeError("nvjpegDecode failed: 2")
        return decode(files, device)

    monkeypatch.setattr(device_jpeg, "_decode", refusing)
    decoder = DevicePreprocess(HOST, CPU)
    calls.clear()
    with caplog.at_level(logging.WARNING):
        found = decoder(list(PLAIN.values())[:4]) + decoder([bad])
    assert [pixels is None for pixels in found] == [False, True, False, False, True]
    assert calls == [4, 1, 1, 1, 1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "clip.decode = 'device': torchvision refused a JPEG on cpu, and the host decodes it, as it will all others "
        "that are refused: nvjpegDecode failed: 2"
    ]


def test_the_pixels_of_one_call_are_limited(monkeypatch: pytest.MonkeyPatch, on_device: DevicePreprocess) -> None:
    sizes: list[int] = []
    decode = device_jpeg._decode
    monkeypatch.setattr(device_jpeg, "_PIXELS_AT_ONCE", 2 * 90 * 60)
    monkeypatch.setattr(device_jpeg, "_decode", lambda files, device: sizes.append(len(files)) or decode(files, device))
    assert all(pixels is not None for pixels in on_device([jpeg(number) for number in range(5)]))
    assert sizes == [2, 2, 1]


def test_want_of_memory_is_no_images_error(monkeypatch: pytest.MonkeyPatch, on_device: DevicePreprocess) -> None:
    def out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(device_jpeg, "_decode", out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        on_device([jpeg(), jpeg(1)])


@pytest.mark.parametrize("torchvision", [None, SimpleNamespace(ImageReadMode=SimpleNamespace(RGB=3))])
def test_a_missing_decoder_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch, torchvision: object) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.io", torchvision)
    with pytest.raises(MissingDependency, match=r"clip\.decode = 'device': this torchvision decodes no JPEG on cpu"):
        DevicePreprocess(HOST, CPU)


def test_a_decoder_with_wrong_colours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_jpeg, "_decode", lambda files, device: [torch.zeros(3, 16, 16, dtype=torch.uint8)])
    with pytest.raises(MissingDependency, match=r"decodes a JPEG of the colour \(200, 100, 50\) as \[0.0, 0.0, 0.0\]"):
        DevicePreprocess(HOST, CPU)


def test_a_model_with_another_transform_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"clip\.decode = 'device': the model scales images in a way"):
        DevicePreprocess(Preprocess(PreprocessCfg(size=32, resize_mode="squash"), "torch"), CPU)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_pixels_close_to_the_hosts() -> None:
    on_gpu = DevicePreprocess(HOST, torch.device("cuda"))
    for name, pixels in zip(PLAIN, on_gpu(list(PLAIN.values())), strict=True):
        assert pixels is not None, name
        assert np.abs(pixels.astype(int) - HOST(PLAIN[name])).mean() < 4, name
