import pyarrow as pa
import pytest

from interleaved_assets.model.errors import SettingsError, error_code
from interleaved_assets.scoring.clip.prescreen import prescreened
from interleaved_assets.scoring.clip.settings import PrescreenSettings

SCORES = pa.table(
    {
        "sample_id": ["a", "a", "b", "b"],
        "position": pa.array([1, 2, 1, 5], pa.int32()),
        "width": pa.array([100, 200, 300, None], pa.int32()),
        "height": pa.array([100, 100, 100, None], pa.int32()),
        "aspect_ratio": [1.0, 2.0, 3.0, None],
        "sharpness": [10.0, 50.0, 90.0, None],
        "qr_area_ratio": [0.0, 0.05, 0.2, None],
    }
)


@pytest.mark.parametrize(
    ("bounds", "left_out"),
    [
        ({}, []),
        ({"min_sharpness": 50}, [("a", 1)]),
        ({"max_qr_area_ratio": 0.05}, [("a", 2), ("b", 1)]),
        ({"min_aspect_ratio": 2, "max_aspect_ratio": 2}, [("a", 1), ("b", 1)]),
        ({"min_short_side": 100}, []),
        ({"min_short_side": 101}, [("a", 1), ("a", 2), ("b", 1)]),
        ({"max_long_side": 200}, [("b", 1)]),
        ({"max_qr_area_ratio": 0}, [("a", 1), ("a", 2), ("b", 1)]),
    ],
)
def test_bounds_leave_out_what_is_beyond_them_and_never_what_has_no_score(
    bounds: dict[str, float], left_out: list[tuple[str, int]]
) -> None:
    assert sorted(prescreened(SCORES, PrescreenSettings.model_validate(bounds))) == left_out


def test_the_error_says_the_measure_and_the_bound() -> None:
    found = prescreened(SCORES, PrescreenSettings(min_sharpness=50, max_aspect_ratio=2.5))
    assert found["a", 1] == "prescreened: sharpness 10 is below clip.prescreen.min_sharpness 50"
    assert found["b", 1] == "prescreened: aspect_ratio 3 is above clip.prescreen.max_aspect_ratio 2.5"
    found = prescreened(SCORES, PrescreenSettings(min_short_side=101, max_qr_area_ratio=0))
    assert found["b", 1] == "prescreened: short_side 100 is below clip.prescreen.min_short_side 101"
    found = prescreened(SCORES, PrescreenSettings(max_qr_area_ratio=0))
    assert found["a", 1] == "prescreened: qr_area_ratio 0 is not below clip.prescreen.max_qr_area_ratio 0"
    found = prescreened(SCORES, PrescreenSettings(min_sharpness=10.0000001))
    assert found["a", 1] == "prescreened: sharpness 10 is below clip.prescreen.min_sharpness 10.0000001"
    assert {error_code(error) for error in found.values()} == {"prescreened"}


def test_a_bound_on_a_score_that_was_not_computed_is_refused() -> None:
    with pytest.raises(SettingsError, match="max_nsfw is set, and the image scores have no column 'nsfw_score'"):
        prescreened(SCORES, PrescreenSettings(max_nsfw=0.5))
