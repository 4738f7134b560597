import threading

import cv2
import pytest

from interleaved_assets.scoring.decoders import decoders_for_threads


def settings():
    return cv2.getNumThreads(), cv2.utils.logging.getLogLevel()


def test_settings_change_and_come_back_also_after_an_error():
    def failing():
        with decoders_for_threads():
            seen.append(settings())
            raise KeyError

    before, seen = settings(), []
    with pytest.raises(KeyError):
        failing()
    assert seen == [(1, cv2.utils.logging.LOG_LEVEL_SILENT)]
    assert settings() == before


def test_the_last_of_several_pools_restores_the_settings():
    before = settings()
    second_is_in, first_is_out = threading.Event(), threading.Event()

    def second():
        with decoders_for_threads():
            second_is_in.set()
            first_is_out.wait(timeout=10)
            seen.append(settings())

    seen = []
    other = threading.Thread(target=second)
    with decoders_for_threads():
        other.start()
        assert second_is_in.wait(timeout=10)
    first_is_out.set()
    other.join()
    assert seen == [(1, cv2.utils.logging.LOG_LEVEL_SILENT)]
    assert settings() == before
