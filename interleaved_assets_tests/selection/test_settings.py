import json
import math
import tomllib

import pytest
from pydantic import ValidationError

from interleaved_assets.scoring.protocol.filter import ImageFilter
from interleaved_assets.selection.filters import register_filter, unregister_filter
from interleaved_assets.selection.settings import Bounds, SelectionSettings, selection_version


def test_on_by_default_are_blur_qr_ratio_and_clip_with_the_peers_thresholds():
    settings = SelectionSettings()
    assert settings.active_filters() == ("sharpness", "qr", "ratio", "clip")
    assert settings.bounds("sharpness") == Bounds(100.0, None)
    assert settings.bounds("qr") == Bounds(None, 0.05)
    assert settings.bounds("ratio") == Bounds(0.0, None)
    assert settings.bounds("clip") == Bounds(0.15, None)
    assert settings.max_ratio == math.inf


def test_every_setting_has_a_description_with_its_default():
    for name, field in SelectionSettings.model_fields.items():
        assert field.description, name
        assert "Default" in field.description, name


def test_a_bound_turns_its_filter_on_at_its_place():
    settings = SelectionSettings(min_aspect_ratio=1.0, max_nsfw=0.8, min_aesthetic=4, min_short_side=150)
    assert settings.active_filters() == (
        "short_side",
        "aspect",
        "sharpness",
        "qr",
        "nsfw",
        "ratio",
        "clip",
        "aesthetic",
    )


def test_order_lists_filters_and_own_filters_come_last():
    settings = SelectionSettings(order=("qr", "sharpness"), own={"brightness": {"min": 5}})
    assert settings.active_filters() == ("qr", "sharpness", "brightness")
    placed = SelectionSettings(order=("brightness", "qr"), own={"brightness": {"min": 5}})
    assert placed.active_filters() == ("brightness", "qr")


def test_from_toml():
    settings = SelectionSettings.model_validate(
        tomllib.loads(
            """
            order = ["sharpness", "ratio", "watermark"]
            min_sharpness = 80
            max_ratio = inf
            on_fail = { sharpness = "sample" }
            own.watermark.max = 0.5
            """
        )
    )
    assert settings.bounds("watermark") == Bounds(None, 0.5)
    assert settings.active_filters() == ("sharpness", "ratio", "watermark")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"min_blur": 3}, "Extra inputs are not permitted"),
        ({"min_sharpness": "sharp"}, "valid number"),
        ({"min_sharpness": -1}, "greater than or equal to 0"),
        ({"min_sharpness": math.nan}, "greater than or equal to 0|finite"),
        ({"max_qr_area_ratio": 1.5}, "less than or equal to 1"),
        ({"min_clip": 2}, "less than or equal to 1"),
        ({"min_ratio": math.inf}, "finite"),
        ({"min_aesthetic": math.nan}, "finite"),
        ({"own": {"x": {"minimum": 1}}}, "Extra inputs are not permitted"),
        ({"own": {"x": {"min": math.nan}}}, "finite"),
        ({"on_score_error": "skip"}, "'error', 'warn', 'drop_row' or 'drop_sample'"),
        ({"on_fail": {"qr": "shard"}}, "'image' or 'sample'"),
        ({"on_fail": {"blur": "image"}}, "on_fail: no filter named blur"),
        ({"on_fail": {"ratio": "sample"}}, "ratio is a filter of samples"),
        ({"order": ["blur"]}, "order: no filter named blur; there are aesthetic, aspect"),
        ({"order": ["qr", "qr"]}, "order: a filter is named twice"),
        ({"own": {"qr": {"max": 0.1}}}, "own: qr has settings of its own, such as max_qr_area_ratio"),
        ({"min_aspect_ratio": 2, "max_aspect_ratio": 1}, "the minimum 2 is above the maximum 1"),
        ({"own": {"x": {"min": 1_234_568, "max": 1_234_567}}}, "the minimum 1234568 is above the maximum 1234567"),
        ({"own": {"x": {"min": 2, "max": 1}}}, "own.x: the minimum 2 is above the maximum 1"),
        ({"order": ["qr"], "min_aesthetic": 4}, "min_aesthetic is set, and order does not name the filter 'aesthetic'"),
        ({"order": ["qr"], "min_sharpness": 50}, "min_sharpness is set, and order does not name"),
        ({"order": ["qr"], "max_ratio": 0.5}, "max_ratio is set, and order does not name"),
    ],
)
def test_invalid_settings_are_refused_and_named(wrong, said):
    with pytest.raises(ValidationError, match=said):
        SelectionSettings(**wrong)


def test_a_filter_outside_the_order_may_have_its_default_or_a_bound_that_keeps_everything():
    settings = SelectionSettings(order=["qr"], min_sharpness=0, min_ratio=0, max_ratio=math.inf, min_clip=0.15)
    assert settings.active_filters() == ("qr",)


def test_a_default_filter_can_be_left_out_of_the_order():
    assert SelectionSettings(order=("qr",)).active_filters() == ("qr",)


def test_settings_survive_json():
    settings = SelectionSettings(own={"x": {"min": 1}}, on_fail={"qr": "sample"})
    assert SelectionSettings.model_validate_json(settings.model_dump_json()) == settings


def test_version_changes_with_thresholds_and_filters():
    version = selection_version(SelectionSettings())
    assert version == selection_version(SelectionSettings(min_sharpness=100))
    assert version != selection_version(SelectionSettings(min_sharpness=101))
    assert version != selection_version(SelectionSettings(on_fail={"qr": "sample"}))
    own = SelectionSettings(own={"x": {"min": 1}})
    before = selection_version(own)
    register_filter(ImageFilter("x", ("x",), version=2))
    try:
        assert selection_version(own) != before
        assert json.loads(selection_version(own))["filters"]["x"] == 2
    finally:
        unregister_filter("x")


def test_a_bound_that_is_not_set_makes_no_selection_stale() -> None:
    """A new score brings a bound to all settings, and its filter to the order."""
    stated = json.loads(selection_version(SelectionSettings(min_sharpness=100)))["settings"]
    assert None not in stated.values()
    assert stated["order"] == list(SelectionSettings(min_sharpness=100).active_filters())
    assert "min_nsfw" not in stated
    assert "nsfw" not in stated["order"]
