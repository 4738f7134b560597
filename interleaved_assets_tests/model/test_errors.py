"""The exceptions: hierarchy, texts and pickling."""

import pickle

import pytest

from interleaved_assets.model import errors
from interleaved_assets.model.errors import (
    ROW_ERROR_CODES,
    InterleavedError,
    MaterializeError,
    OptionError,
    ShardError,
    StorageError,
    StorageUnavailable,
    UnsupportedModality,
    error_code,
    row_error,
)


def test_every_error_says_its_meaning_which_the_page_of_errors_shows() -> None:
    classes = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, InterleavedError)
    ]
    assert len(classes) >= 10
    assert all(kind.__doc__ for kind in classes)


def test_errors_derive_from_matching_builtin_exceptions() -> None:
    assert issubclass(OptionError, ValueError)
    assert issubclass(UnsupportedModality, OptionError)
    assert issubclass(StorageError, OSError)
    assert issubclass(StorageUnavailable, StorageError)
    assert not issubclass(ShardError, OSError)


def test_materialize_error_names_row_and_advice_and_pickles() -> None:
    error = MaterializeError(shard="s.tar", sample_id="a", position=3, member="a.png", error="short_read: 1 of 2")
    again = pickle.loads(pickle.dumps(error))
    for one in (error, again):
        assert str(one) == (
            "s.tar: sample 'a', position 3, member 'a.png': short_read: 1 of 2. "
            "Fix the shard, or choose on_materialize_error='warn', 'drop_row' or 'drop_sample'."
        )
        assert (one.shard, one.sample_id, one.position, one.member) == ("s.tar", "a", 3, "a.png")
        assert one.code == "short_read"


@pytest.mark.parametrize("kind", [StorageError, StorageUnavailable, ShardError, OptionError])
def test_other_errors_pickle(kind: type[Exception]) -> None:
    error = pickle.loads(pickle.dumps(kind("cannot read a.tar: gone")))
    assert type(error) is kind
    assert str(error) == "cannot read a.tar: gone"


def test_row_errors_have_a_known_code_in_front() -> None:
    for code, meaning in ROW_ERROR_CODES.items():
        assert error_code(row_error(code, "some: detail")) == code
        assert meaning[0].islower()
        assert not meaning.endswith(".")
    with pytest.raises(KeyError):
        row_error("no_such_code", "detail")
    assert error_code("words of another tool") == "unknown"
    assert error_code("") == "unknown"
