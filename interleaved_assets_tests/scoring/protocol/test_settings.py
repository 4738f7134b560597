import pytest
from pydantic import ValidationError

from interleaved_assets.scoring.protocol.settings import ScoringSettings


def test_defaults():
    settings = ScoringSettings()
    assert settings.scorers == ("sharpness", "qr", "thumbnail")
    assert settings.qr_detector == "zxing+aruco"
    assert settings.max_pixels == 89_478_485


def test_every_setting_has_a_description_with_its_default():
    for name, field in ScoringSettings.model_fields.items():
        assert field.description, name
        assert "Default" in field.description, name


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"scorers": ["blur"]}, "no scorer named blur; there are sharpness, sharpness_grey, sharpness_256"),
        ({"scorers": ["qr", "qr"]}, "a scorer is named twice"),
        ({"scorers": "qr"}, "valid tuple"),
        ({"qr_detector": "zxing"}, "'zxing\\+aruco', 'opencv' or 'zbar'"),
        ({"qr_detector": "magic"}, "'zxing\\+aruco', 'opencv' or 'zbar'"),
        ({"max_pixels": 0}, "greater than or equal to 1"),
        ({"max_pixels": 10**9}, "less than or equal to 178956970"),
        ({"min_sharpness": 100}, "Extra inputs are not permitted"),
    ],
)
def test_invalid_settings_are_refused_and_named(wrong, said):
    with pytest.raises(ValidationError, match=said):
        ScoringSettings(**wrong)
