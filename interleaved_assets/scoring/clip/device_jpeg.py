"""Plain JPEGs to pixels on the model's device, several in one call of torchvision's decoder; others are for the host.

On a GPU the decoder is nvJPEG, on a CPU libjpeg-turbo. What becomes of an image never depends on it: a file that it
refuses is decoded on the host, whose decoder says what is wrong with it.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import numpy as np
import torch
from PIL import Image

from interleaved_assets.model.errors import ImageError, MissingDependency, SettingsError
from interleaved_assets.scoring.clip.image import Pixels, Preprocess, scaled_size
from interleaved_assets.scoring.containers import Buffer, bytes_of
from interleaved_assets.scoring.size import exif_orientation, open_header

logger = logging.getLogger(__name__)

_START: Final = b"\xff\xd8\xff"
# A file without this end may be truncated, and not every decoder says so.
_END: Final = b"\xff\xd9"
_START_OF_SCAN: Final = 0xDA
_ADOBE: Final = 0xEE
# Start-of-frame markers, of which only these two are Huffman-coded, in 8 bits, and not lossless.
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BASELINE_AND_PROGRESSIVE: Final = frozenset({0xC0, 0xC2})
# Markers without a length have no place before the scan, nor has arithmetic coding.
_UNUSUAL: Final = frozenset({0x01, 0xCC, *range(0xD0, 0xDA)})
_GREY: Final = 1
# Bytes of the sampling factors, across and down, of the three components: 4:4:4, 4:2:2, 4:2:0, 4:4:0.
_SUBSAMPLINGS: Final = frozenset({(0x11, 0x11, 0x11), (0x21, 0x11, 0x11), (0x22, 0x11, 0x11), (0x12, 0x11, 0x11)})
_YCBCR_IDS: Final = ((1, 2, 3), (0, 1, 2))

# Pixels decoded in one call, unless a single image has more: 100 MB. The scaling takes 12 bytes a pixel besides, for
# one image at a time.
_PIXELS_AT_ONCE: Final = 2**25


@dataclass(frozen=True)
class _Jpeg:
    """A file that the device may decode: its bytes, size as stored, and EXIF orientation."""

    data: torch.Tensor
    width: int
    height: int
    orientation: int


class DevicePreprocess:
    """From the bytes of JPEGs to pixels, decoded, turned upright and scaled on a device.

    Its colours may differ from the host's by what two decoders differ; sizes, orientation and crop are the same.

    Args:
        host: decodes all other images; gives the size to scale to and the limit of pixels.
        device: where to decode.

    Raises:
        MissingDependency: torchvision has no decoder for the device.
        SettingsError: the model sees images in another way than scaled by the shortest side and cropped to a square.
    """

    def __init__(self, host: Preprocess, device: torch.device) -> None:
        if host.side is None:
            raise SettingsError(
                "clip.decode = 'device': the model scales images in a way that is done on the host only; set "
                "clip.decode = 'host'"
            )
        self._host, self._side, self._device = host, host.side, device
        self._lock = threading.Lock()
        # The decoder writes on a stream of its own, which does not wait for the caller's, into memory that work queued
        # on the caller's may still read. On this stream nothing is queued when the decoder is called: each use of it
        # ends with a copy to the host that waits.
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._has_warned = False
        _check_decoder(device)

    def __call__(self, files: Sequence[Buffer]) -> list[Pixels | None]:
        """The pixels of each file, as :class:`Preprocess` returns them; None where it is for the host to decode.

        Safe to call from several threads.

        Raises:
            RuntimeError: the device failed, such as for want of memory.
        """
        found: list[Pixels | None] = [None] * len(files)
        jpegs = {index: jpeg for index, data in enumerate(files) if (jpeg := self._plain_jpeg(data)) is not None}
        for part in _parts(jpegs):
            with torch.inference_mode(), self._alone():
                decoded = self._decoded([jpegs[index].data for index in part])
                for index, image in zip(part, decoded, strict=True):
                    jpeg = jpegs[index]
                    if image is not None and image.shape == (3, jpeg.height, jpeg.width):
                        found[index] = self._scaled(_turned(image, jpeg.orientation)).cpu().numpy()
        return found

    def _plain_jpeg(self, data: Buffer) -> _Jpeg | None:
        view = bytes_of(data)
        if bytes(view[:3]) != _START or bytes(view[-2:]) != _END:
            return None
        try:
            header = open_header(data, max_pixels=self._host.max_pixels)
        except ImageError:
            return None  # the host says what is wrong
        width, height = header.size
        is_fit = (
            header.format == "JPEG"
            and width * height <= self._host.max_pixels
            and self._host.is_for_torch(width, height)
            and _frame_size(view) == (width, height)
        )
        if not is_fit:
            return None
        return _Jpeg(torch.from_numpy(np.frombuffer(data, np.uint8).copy()), width, height, exif_orientation(header))

    def _decoded(self, files: list[torch.Tensor]) -> list[torch.Tensor | None]:
        """Red-green-blue, 3 x height x width, uint8; None for a file that the decoder refuses."""
        try:
            return list(_decode(files, self._device))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if len(files) == 1:
                self._warn(error)
                return [None]
        # the call does not say which one it was
        return [image for file in files for image in self._decoded([file])]

    def _scaled(self, image: torch.Tensor) -> torch.Tensor:
        """The middle of an image, height x width x 3, uint8."""
        (width, height), (left, top) = scaled_size(image.shape[2], image.shape[1], self._side)
        if (height, width) != image.shape[1:]:
            # a GPU interpolates with antialiasing in floating point only
            values = torch.nn.functional.interpolate(
                image.unsqueeze(0).float(), (height, width), mode=self._host.config.interpolation, antialias=True
            )
            image = values[0].round_().clamp_(0, 255).to(torch.uint8)
        cropped = image[:, top : top + self._side, left : left + self._side]
        return cropped.permute(1, 2, 0).contiguous()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """On a GPU, one thread at a time, on a stream that does nothing else."""
        if self._stream is None:
            yield
            return
        with self._lock, torch.cuda.stream(self._stream):
            yield

    def _warn(self, error: RuntimeError) -> None:
        """Say why the first file was refused, which may be damaged; were it all of them, the device would be idle."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "clip.decode = 'device': torchvision refused a JPEG on %s, and the host decodes it, as it will all "
                "others that are refused: %s",
                self._device,
                str(error).partition("\n")[0],
            )


def _parts(jpegs: dict[int, _Jpeg]) -> Iterator[list[int]]:
    """Their indices, in parts that are decoded in one call."""
    part: list[int] = []
    pixels = 0
    for index, jpeg in jpegs.items():
        size = jpeg.width * jpeg.height
        if part and pixels + size > _PIXELS_AT_ONCE:
            yield part
            part, pixels = [], 0
        part.append(index)
        pixels += size
    if part:
        yield part


def _turned(image: torch.Tensor, orientation: int) -> torch.Tensor:
    """An image, 3 x height x width, upright by its EXIF orientation."""
    if orientation >= 5:
        image = image.transpose(1, 2)
    across, down = orientation in (2, 3, 6, 7), orientation in (3, 4, 7, 8)
    return image.flip([dim for dim, is_flipped in ((2, across), (1, down)) if is_flipped])


def _frame_size(data: memoryview) -> tuple[int, int] | None:
    """Width and height of a JPEG of a plain kind; None of any other kind, and where its markers are damaged.

    Plain is: baseline or progressive, 8 bits, grey or YCbCr with the usual subsampling, one frame.
    """
    at, size = 2, None
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == _START_OF_SCAN:
            return size
        body = data[at + 4 : at + 2 + length]
        if marker in _UNUSUAL or length < 2 or (marker == _ADOBE and not _is_ycbcr(body)):
            return None
        if marker in _FRAMES:
            if size is not None or marker not in _BASELINE_AND_PROGRESSIVE or not _is_plain_frame(body):
                return None
            size = int.from_bytes(body[3:5], "big"), int.from_bytes(body[1:3], "big")
        at += 2 + length
    return None


def _is_plain_frame(body: memoryview) -> bool:
    if len(body) < 6 or body[0] != 8 or len(body) != 6 + 3 * body[5]:
        return False
    ids, samplings = tuple(body[6::3]), tuple(body[7::3])
    return body[5] == _GREY or (ids in _YCBCR_IDS and samplings in _SUBSAMPLINGS)


def _is_ycbcr(adobe: memoryview) -> bool:
    """Whether an Adobe marker leaves the colours as they are without one."""
    return bytes(adobe[:5]) == b"Adobe" and len(adobe) >= 12 and adobe[11] == 1


def _decode(files: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    from torchvision.io import ImageReadMode, decode_jpeg

    images: list[torch.Tensor] = decode_jpeg(files, mode=ImageReadMode.RGB, device=device)
    return images


def _check_decoder(device: torch.device) -> None:
    """Decode a small image of one colour.

    Raises:
        MissingDependency: that does not work.
    """
    colour = (200, 100, 50)
    buffer = BytesIO()
    Image.new("RGB", (16, 16), colour).save(buffer, "JPEG", quality=95)
    try:
        (image,) = _decode([torch.from_numpy(np.frombuffer(buffer.getvalue(), np.uint8).copy())], device)
    except (ImportError, RuntimeError) as error:
        raise MissingDependency(
            f"clip.decode = 'device': this torchvision decodes no JPEG on {device}: "
            f"{str(error).partition(chr(10))[0]}. Install a torchvision with its decoder, or set clip.decode = 'host'"
        ) from error
    found = image.float().mean(dim=(1, 2)).tolist()
    if max(abs(value - wanted) for value, wanted in zip(found, colour, strict=True)) > 4:
        raise MissingDependency(
            f"clip.decode = 'device': torchvision decodes a JPEG of the colour {colour} as {found} on {device}; set "
            "clip.decode = 'host'"
        )
