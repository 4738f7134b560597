import io
import subprocess
import sys
import threading
import warnings

import cv2
import pytest
from PIL import Image

from interleaved_assets.scoring.images.decoders import decoders_for_threads


def settings_of_opencv():
    return cv2.getNumThreads(), cv2.utils.logging.getLogLevel()


def test_settings_change_and_come_back_also_after_an_error():
    def failing():
        with decoders_for_threads():
            seen.append(settings_of_opencv())
            raise KeyError

    before, seen = settings_of_opencv(), []
    with pytest.raises(KeyError):
        failing()
    assert seen == [(1, cv2.utils.logging.LOG_LEVEL_SILENT)]
    assert settings_of_opencv() == before


def test_the_last_of_several_pools_restores_the_settings():
    before = settings_of_opencv()
    second_is_in, first_is_out = threading.Event(), threading.Event()

    def second():
        with decoders_for_threads():
            second_is_in.set()
            first_is_out.wait(timeout=60)
            seen.append(settings_of_opencv())

    seen = []
    other = threading.Thread(target=second)
    with decoders_for_threads():
        other.start()
        assert second_is_in.wait(timeout=60)
    first_is_out.set()
    other.join()
    assert seen == [(1, cv2.utils.logging.LOG_LEVEL_SILENT)]
    assert settings_of_opencv() == before


# Damaged images are decoded, first without and then with the settings; other threads write to stderr meanwhile.
STDERR_OF_OTHERS = r"""
import ctypes, logging, os, subprocess, sys, threading
import cv2
import numpy as np
from interleaved_assets.scoring.images.decoders import decoders_for_threads

logging.basicConfig(format="%(message)s")
files = [np.frombuffer(bytes.fromhex(text), np.uint8) for text in sys.argv[1:]]
done = threading.Event()

def decode():
    while not done.is_set():
        for file in files:
            cv2.imdecode(file, cv2.IMREAD_COLOR)

def write(name, one):
    for number in range(100):
        one(f"{name} {number}")

for file in files:
    cv2.imdecode(file, cv2.IMREAD_COLOR)
os.write(2, b"begin\n")
decoders = [threading.Thread(target=decode) for _ in range(2)]
writers = [
    threading.Thread(target=write, args=("logging", logging.warning)),
    threading.Thread(target=write, args=("python", lambda text: sys.stderr.write(text + "\n"))),
    threading.Thread(target=write, args=("descriptor", lambda text: os.write(2, (text + "\n").encode()))),
]
with decoders_for_threads():
    for thread in decoders + writers:
        thread.start()
    subprocess.run(["sh", "-c", "echo child >&2"], check=True)
    for thread in writers:
        thread.join()
    done.set()
    for thread in decoders:
        thread.join()
library = ctypes.CDLL(None)
library.fputs(b"of C, after\n", ctypes.c_void_p.in_dll(library, "stderr"))
library.fflush(None)
"""


def damaged_images() -> list[bytes]:
    """A JPEG and a PNG about which the decoders print messages."""
    files = []
    for image_format, rest in (("JPEG", b"\xff\xd9"), ("PNG", bytes(500))):
        buffer = io.BytesIO()
        Image.linear_gradient("L").convert("RGB").save(buffer, image_format)
        content = buffer.getvalue()
        files.append(content[: len(content) // 2] + rest)
    return files


@pytest.mark.skipif(sys.platform != "linux", reason="messages of C libraries are suppressed on Linux only")
def test_nothing_that_other_threads_write_to_stderr_is_lost_while_damaged_images_are_decoded() -> None:
    command = [sys.executable, "-c", STDERR_OF_OTHERS, *(content.hex() for content in damaged_images())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    loud, _, meanwhile = done.stderr.partition("begin\n")
    assert "JPEG data" in loud
    assert "libpng" in loud
    wanted = [f"{name} {number}" for name in ("logging", "python", "descriptor") for number in range(100)]
    assert sorted(meanwhile.splitlines()) == sorted([*wanted, "child", "of C, after"])


def test_filters_of_warnings_that_others_change_meanwhile_stay_changed() -> None:
    with warnings.catch_warnings():
        before = list(warnings.filters)
        with decoders_for_threads():
            warnings.warn_explicit("of Pillow", UserWarning, "Image.py", 1, module="PIL.Image")
            warnings.filterwarnings("error", message="added meanwhile")
        assert len(warnings.filters) == len(before) + 1
        with pytest.raises(UserWarning, match="added meanwhile"):
            warnings.warn("added meanwhile", UserWarning, stacklevel=1)
