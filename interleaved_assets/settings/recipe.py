"""Recipes: the filters of published data sets as settings, each in a file of the folder ``recipes``."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, Final, NamedTuple

from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.protocol.scorer import all_scorers
from interleaved_assets.selection.filters import BUILT_IN
from interleaved_assets.selection.settings import bound_settings
from interleaved_assets.settings.sections import ENV_PREFIX

KEY: Final = "recipe"
"""The key of a settings file that names a recipe."""
_FOLDER: Final = files("interleaved_assets.settings") / "recipes"
_ENDING: Final = ".toml"
_IDENTITY: Final = "identity"
"""The scorer of texts that no bound needs: a later step finds repeated documents by it, which every data set drops."""
_ABOUT: Final = ("recipe", "differs", "cannot")
"""Tables of a recipe's file that are no settings."""


class Lacking(NamedTuple):
    """A rule of a data set that its recipe does not have."""

    what: str
    number: str
    """The rule with its numbers."""
    instead: str = ""
    """Advice on what to do instead; empty if there is none."""


class Different(NamedTuple):
    """A measure that a data set defines in another way than its recipe."""

    what: str
    theirs: str
    ours: str


class Recipe(NamedTuple):
    """The filters of a published data set."""

    name: str
    title: str
    source: str
    """Origin of the numbers."""
    about: str
    settings: Mapping[str, Any]
    """Tables as in a settings file."""
    lacking: tuple[Lacking, ...]
    different: tuple[Different, ...]
    text: str
    """The tables with their comments, as they stand in the file."""


def recipe_names() -> list[str]:
    """Return the names of all recipes, sorted."""
    found = (file.name for file in _FOLDER.iterdir())
    return sorted(name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING))


def read_recipe(name: str) -> Recipe:
    """Return the recipe with this name; raise OptionError if there is none."""
    names = recipe_names()
    if name not in names:
        alike = get_close_matches(name, names, n=1)
        hint = f"; did you mean {alike[0]}?" if alike else ""
        raise OptionError(f"no recipe named {name!r}; there are {', '.join(names)}{hint}")
    text = (_FOLDER / f"{name}{_ENDING}").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    settings = _completed({table: values for table, values in content.items() if table not in _ABOUT}, {})
    lacking = tuple(Lacking(**rule) for rule in content["cannot"])
    different = tuple(Different(**rule) for rule in content["differs"])
    shown = text.partition("\n[[differs]]")[0].strip()
    return Recipe(name, **content["recipe"], settings=settings, lacking=lacking, different=different, text=shown)


def with_recipe(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a settings file with the values of the recipe that it names; its own values win.

    Raises OptionError if there is no such recipe.
    """
    given = {name: value for name, value in own.items() if name != KEY}
    if KEY not in own:
        return given
    if not isinstance(own[KEY], str):
        raise OptionError(f"the name of a recipe is a text, such as {recipe_names()[0]!r}")
    recipe = read_recipe(own[KEY])
    return _completed(_merged(recipe.settings, given), given)


def recipe_values(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are in force because of the recipe that a settings file names, by dotted name."""
    before, after = dict(_flat(own)), dict(_flat(with_recipe(own)))
    return {
        name: value
        for name, value in after.items()
        if name not in before and f"{ENV_PREFIX}{'__'.join(name.split('.')[:2])}".upper() not in os.environ
    }


def recipe_lines(recipe: Recipe) -> dict[str, Any]:
    """Return the values of a recipe by dotted name, such as ``selection.document.words.min``."""
    return dict(_flat(recipe.settings))


def _merged(recipe: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``own`` completed by ``recipe``, table by table."""
    merged = {**recipe, **own}
    for name, value in own.items():
        below = recipe.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[name] = _merged(below, value)
    return merged


def _completed(settings: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with what follows from their bounds, unless ``own`` says it.

    These are the filters to apply, which are those with a bound, and the scorers of texts: those that measure what is
    bounded, and the identities.
    """
    selection, chosen, documents = settings.get("selection", {}), own.get("selection", {}), own.get("documents", {})
    if not all(isinstance(table, Mapping) for table in (selection, chosen, documents)):
        return settings  # the check of the settings refuses it
    order = [name for name in BUILT_IN if not {*bound_settings(name)}.isdisjoint(selection)]
    bounded = {name: _bounded(selection[name], chosen.get(name)) for name in ("document", "text") if name in selection}
    columns = {column for table in bounded.values() if isinstance(table, Mapping) for column in table}
    scorers = [
        one.name
        for one in all_scorers()
        if one.section == "documents" and (one.name == _IDENTITY or not columns.isdisjoint(one.columns))
    ]
    return {
        **settings,
        "selection": {**selection, **bounded, "order": chosen.get("order", order)},
        "documents": {**settings.get("documents", {}), "scorers": documents.get("scorers", scorers)},
    }


def _bounded(bounds: Any, own: Any) -> Any:
    """Return the bounds by column without those that ``own`` takes away by an empty table."""
    if not (isinstance(bounds, Mapping) and isinstance(own, Mapping)):
        return bounds
    return {name: value for name, value in bounds.items() if own.get(name) != {}}


def _flat(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
