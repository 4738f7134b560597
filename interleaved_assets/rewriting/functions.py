"""The functions that rewrite rows, by name: the built-in ones, and those of a user's module."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

import pyarrow as pa

from interleaved_assets.model.errors import OptionError

Reasons = Sequence[str | None]
"""For each row that a function was given, why it was changed or dropped; only those of such rows are read."""
RewriteFunction = Callable[[pa.Table], pa.Table | tuple[pa.Table, Reasons]]
"""A function that gets the rows of whole samples without image bytes, and returns them with other texts, or without
some text rows. It may return reasons along with them."""

_HERE: Final = "interleaved_assets.rewriting"
BUILT_IN: Final = {
    "redact_personal_data": f"{_HERE}.personal_data:redact_personal_data",
    "normalize_unicode": f"{_HERE}.characters:normalize_unicode",
    "normalize_whitespace": f"{_HERE}.characters:normalize_whitespace",
    "drop_boilerplate": f"{_HERE}.boilerplate:drop_boilerplate",
}
"""The place of each built-in function, by name."""


def load_function(name: str) -> RewriteFunction:
    """Return the built-in function ``name``, or the function at the place ``module:function``.

    Raises:
        OptionError: there is no such function; the message says what is allowed.
    """
    module, _, attribute = BUILT_IN.get(name, name).partition(":")
    if not (module and attribute) or module.startswith("."):
        raise OptionError(
            f"no function named {name}; there are {', '.join(BUILT_IN)}, and functions of your own as module:function, "
            "such as my_team.texts:remove_emoji"
        )
    try:
        function = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{name} cannot be imported: {error}. Install its package into this environment, or add the folder it lies "
            "in to PYTHONPATH"
        ) from error
    except Exception as error:
        raise OptionError(f"{name}: its module fails while it is imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise OptionError(f"{name}: the module {module} has no function {attribute}")
    found: RewriteFunction = function
    return found
