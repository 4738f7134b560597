import math
from collections.abc import Callable
from typing import Any

import pytest

from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.protocol.registry import prepare_scorers
from interleaved_assets.scoring.protocol.scorer import ABOVE_ZERO, Range, Scorer, register_scorer, unregister_scorer
from interleaved_assets.scoring.protocol.settings import ScoringSettings


@pytest.mark.parametrize(
    ("allowed", "low", "high", "holds"),
    [
        (Range(0, 1), 0, 1, True),
        (Range(0, 1), 0, 1.0000001, False),
        (Range(0, 1), -1e-9, 1, False),
        (Range(low=0), 0, 1e300, True),
        (Range(), -1e300, 1e300, True),
        (Range(low=ABOVE_ZERO), 0, 1, False),
        (Range(low=ABOVE_ZERO), 1e-300, 1, True),
    ],
)
def test_both_ends_are_included(allowed: Range, low: float, high: float, holds: bool) -> None:
    assert allowed.holds(low, high) is holds


def test_ranges_as_text() -> None:
    assert [str(found) for found in (Range(0, 1), Range(low=-1), Range(high=0.5), Range(low=ABOVE_ZERO))] == [
        "0 to 1",
        "-1 to any",
        "any to 0.5",
        "above 0 to any",
    ]
    assert Range() == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": {"own": "float6"}}, "scorer 'own': columns {'own': 'float6'} are no Arrow types by name"),
        ({"columns": {"own": float}}, "are no Arrow types by name"),
        ({"columns": ["own"]}, "are no Arrow types by name"),
        ({"columns": {"modality": "string"}}, "name or a column is taken"),
        ({"packages": "numpy"}, "scorer 'own': packages is a string and not a tuple: give \\('numpy',\\)"),
        ({"ranges": {"own": (0, 1)}}, "scorer 'own': the range of own is no Range"),
    ],
)
def test_a_scorer_with_a_part_of_another_type_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        register_scorer(Scorer(**{"name": "own", "columns": {"own": "double"}, "prepare": lambda _: float, **given}))


def fails(_: ScoringSettings) -> None:
    raise RuntimeError("weights gone")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (fails, "scorer 'own' cannot be prepared: RuntimeError: weights gone"),
        (lambda _: None, "scorer 'own': prepare returned None and not the function that measures"),
    ],
)
def test_a_scorer_that_cannot_be_prepared_is_named(prepare: Callable[[Any], Any], message: str) -> None:
    register_scorer(Scorer("own", {"own": "double"}, prepare))
    try:
        with pytest.raises(OptionError, match=message):
            prepare_scorers(ScoringSettings(scorers=("own",)))
    finally:
        unregister_scorer("own")
