"""Recipes: their files, how they are merged with a settings file, what is current after a change of the recipe."""

import json
import re
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets.model.errors import OptionError, SettingsError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import code_versions, stage_dag
from interleaved_assets.settings import (
    Settings,
    as_toml,
    load_settings,
    parse_settings,
    read_recipe,
    recipe_lines,
    recipe_names,
    values_of_recipe,
)
from interleaved_assets.settings.recipe import with_recipe
from interleaved_assets_tests.documents import good_shard, project, with_downstream
from interleaved_assets_tests.projects import take_all

ROOT = Path(__file__).parents[2]
FILES = ROOT / "interleaved_assets/settings/recipes"


NAMES = ["mint1t", "mmc4", "nemotron-cc-mm", "obelics", "omnicorpus"]


def written(folder: Path, text: str) -> Path:
    file = folder / "interleaved.toml"
    file.write_text(text)
    return file


def test_there_are_these_recipes() -> None:
    assert recipe_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_says_where_it_is_from_and_what_it_lacks(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe.title
    assert "arXiv" in recipe.source or "NVIDIA" in recipe.source
    # every published recipe has rules for repeated images or documents
    assert any(rule.what.startswith("repeated") for rule in recipe.lacking)
    assert all(rule.what and rule.number for rule in recipe.lacking)
    assert all(all(one) for one in recipe.different)
    assert not {"recipe", "cannot", "differs"} & {*recipe.settings}
    assert {*recipe.settings} <= {*Settings.model_fields}


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_its_source_beside_it(name: str) -> None:
    lines = [line for line in read_recipe(name).text.splitlines() if re.match(r"\w+ = (\d|{)", line)]
    assert len(lines) > 5
    assert [line for line in lines if not re.search(r"\S +# \w", line)] == []


def test_numbers_that_were_not_verified_are_marked() -> None:
    for name, what in (("mint1t", "min_images"), ("omnicorpus", "words = { min = 5 }"), ("mint1t", "language ")):
        line = next(line for line in read_recipe(name).text.splitlines() if line.startswith(what))
        assert "UNVERIFIED" in line


def test_gophers_rules_of_repetition_are_whole() -> None:
    bounds = [
        {name: value for name, value in recipe_lines(read_recipe(one)).items() if re.search(r"_gram|duplicate_", name)}
        for one in ("omnicorpus", "mint1t")
    ]
    assert bounds[0] == bounds[1]
    assert len(bounds[0]) == 13


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_accepted_and_names_what_measures(name: str, tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, f'recipe = "{name}"\n[selection]\n'))
    assert settings.selection.min_short_side == 150
    assert settings.selection.bounds("aspect") == (0.5, 2)
    names = settings.selection.active_filters()
    assert not {"sharpness", "qr", "ratio"} & {*names}
    assert "images" in names
    assert "identity" in settings.documents.scorers
    assert settings.scoring.scorers == ("thumbnail", "image_identity")


def test_obelics_judges_the_punctuation_of_texts_and_documents() -> None:
    lines = recipe_lines(read_recipe("obelics"))
    assert lines["selection.text.punctuation.min"] == 0.001
    assert lines["selection.document.punctuation.min"] == 0.03
    assert not any("punctuation" in rule.what for rule in read_recipe("obelics").lacking)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('recipe = "obelisk"\n', r"recipe: no recipe named 'obelisk'; there are mint1t, .*; did you mean obelics\?"),
        ("recipe = 3\n", "recipe: the name of a recipe is a text, such as 'mint1t'"),
        ('recipe = "../obelics"\n', r"recipe: no recipe named '\.\./obelics'"),
        ("recipe = []\n[selection]\nmin_short_side = 3\n", "recipe: the name of a recipe is a text"),
        ('[selection]\nrecipe = "obelics"\n', "selection.recipe: unknown key"),
        ('recipe = "obelics"\nselection = 3\n', "selection: Input should be"),
        ('recipe = "obelics"\n[selection]\ndocument = 3\n', "selection.document"),
        ('recipe = "obelics"\ndocuments = 3\n', "documents: Input should be"),
    ],
)
def test_what_names_no_recipe_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"interleaved\.toml:(?s:.*){message}"):
        load_settings(written(tmp_path, text))


def test_without_a_recipe_nothing_is_merged() -> None:
    own = {"selection": {"min_short_side": 3}, "scoring": {}}
    assert with_recipe(own) == own


def test_own_values_win_and_the_rest_is_the_recipes() -> None:
    own = {
        "recipe": "omnicorpus",
        "selection": {
            "min_short_side": 200,
            "max_qr_area_ratio": 0.1,
            "document": {"words": {"min": 20}, "top_word": {}, "emails": {"max": 3}},
            "own": {"brightness": {"min": 20}},
        },
        "scoring": {"scorers": ["qr"]},
    }
    merged = with_recipe(own)
    assert "recipe" not in merged
    selection = merged["selection"]
    assert (selection["min_short_side"], selection["max_long_side"]) == (200, 20000)
    # one bound of a column; a column without bounds; a column that the recipe does not have
    assert selection["document"]["words"] == {"min": 20, "max": 100000}
    assert "top_word" not in selection["document"]
    assert selection["document"]["emails"] == {"max": 3}
    assert selection["document"]["top_2_gram"] == {"max": 0.2}
    assert selection["own"] == {"brightness": {"min": 20}}
    # a filter with a bound of the file's own is applied too, the defaults of others are not
    assert [name for name in selection["order"] if name not in ("images", "words")] == [
        "short_side",
        "long_side",
        "aspect",
        "qr",
    ]
    assert merged["scoring"]["scorers"] == ["qr"]
    assert with_recipe({**own, "selection": {"order": ["aspect"]}})["selection"]["order"] == ["aspect"]
    assert with_recipe({**own, "documents": {"scorers": []}})["documents"]["scorers"] == []


def test_a_recipe_is_not_changed_by_merging() -> None:
    before = json.dumps(read_recipe("obelics").settings)
    with_recipe({"recipe": "obelics", "selection": {"min_short_side": 3, "document": {"words": {"min": 1}}}})
    assert json.dumps(read_recipe("obelics").settings) == before


def test_settings_show_which_values_are_from_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "min_short_side = 200\ndocument.punctuation.min = 0.01\n"
    file = written(tmp_path, f'recipe = "obelics"\n[selection]\n{own}')
    monkeypatch.setenv("INTERLEAVED_SELECTION__MAX_LONG_SIDE", "500")
    name, values = values_of_recipe(file)
    assert name == "obelics"
    assert values["selection.max_aspect_ratio"] == 2
    assert not {"selection.min_short_side", "selection.max_long_side", "selection.document.punctuation.min"} & {*values}
    assert main(["--settings", str(file), "settings", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["selection.max_aspect_ratio"]["recipe"] == "obelics"
    assert shown["selection.document"]["recipe"] == "obelics"
    assert shown["selection.min_short_side"] | {"description": ""} == {
        "value": 200,
        "default": None,
        "description": "",
        "recipe": None,
    }
    assert main(["--settings", str(file), "settings"]) == 0
    assert "recipe obelics" in " ".join(capsys.readouterr().out.split())
    assert main(["--settings", str(file), "recipe", "diff", "obelics", "--json"]) == 0
    different = json.loads(capsys.readouterr().out)["different"]
    assert different["selection.min_short_side"] == {"recipe": 150, "in_force": 200}
    assert different["selection.max_long_side"] == {"recipe": 20000, "in_force": 500}
    assert "selection.max_aspect_ratio" not in different


def test_the_command_shows_recipes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["recipe", "list", "--json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)) == NAMES
    assert main(["recipe", "list"]) == 0
    assert "nemotron-cc-mm" in capsys.readouterr().out
    assert main(["recipe", "show", "mmc4"]) == 0
    shown = capsys.readouterr().out
    assert "min_clip = 0.15 " in shown
    assert "with at least one sentence" in shown
    assert "bipartite" in shown
    assert "texts that CLIP compares" in shown
    assert "[[" not in shown
    assert main(["recipe", "show", "mmc4", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["settings"]["selection.min_clip"] == 0.15
    assert {"what": "texts that CLIP compares", "theirs": "sentences", "ours": "text rows"} in facts["different"]
    assert {"what": "faces (mmc4-ff)", "number": "images with a detected face are out", "instead": ""} in facts[
        "not_done"
    ]
    assert main(["recipe", "show"]) == 2
    assert "recipe show needs NAME; interleaved recipe list prints the names" in capsys.readouterr().err
    assert main(["recipe", "list", "mmc4"]) == 2
    assert "recipe list takes no NAME; interleaved recipe show mmc4 prints one recipe" in capsys.readouterr().err
    assert main(["recipe", "show", "laion"]) == 2
    assert "no recipe named 'laion'; there are mint1t, mmc4" in capsys.readouterr().err
    project(tmp_path)
    base = ["--settings", str(tmp_path / "interleaved.toml")]
    assert main([*base, "recipe", "diff", "obelics"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "selection.min_short_side" in line)
    assert [cell.strip() for cell in line.split("│")[1:-1]] == ["selection.min_short_side", "150", "none"]


def test_a_recipe_applies_the_filters_that_it_bounds() -> None:
    lines = recipe_lines(read_recipe("obelics"))
    assert lines["selection.min_short_side"] == 150
    assert lines["selection.order"][:3] == ["short_side", "long_side", "aspect"]
    with pytest.raises(OptionError, match="no recipe named ''"):
        read_recipe("")


def test_a_changed_recipe_makes_filtered_stale_as_far_as_values_change(tmp_path: Path) -> None:
    rest = '[rewriting]\nfunctions = []\n[selection]\non_score_error = "drop_row"\ndocument.language = {}\n'
    rest += "document.language_probability = {}\n"
    good_shard(tmp_path / "raw/a.tar")

    def settings_with(recipe: str, more: str = "") -> Settings:
        text = f'recipe = "{recipe}"\n{rest}{more}[storage]\nraw_root = "raw"\noutput_root = "out"\n'
        return load_settings(written(tmp_path, text))

    take_all(settings_with("mint1t"))
    same = settings_with("mint1t")
    assert all(take_through(stage, "a", same).unchanged for stage in stage_dag(same).values())
    other = settings_with("obelics")
    outcomes = {name: take_through(stage, "a", other).unchanged for name, stage in stage_dag(other).items()}
    assert (outcomes["normalized"], outcomes["image_scores"], outcomes["filtered"]) == (True, True, False)


def test_the_same_values_written_by_hand_are_the_same_versions(tmp_path: Path) -> None:
    recipe = read_recipe("nemotron-cc-mm")
    tables = recipe.text.partition("\n[rewriting]")[2]
    lines = recipe_lines(recipe)
    chosen = f"[selection]\norder = {as_toml(lines['selection.order'])}\n"
    by_hand = f"[rewriting]{tables}\n[documents]\nscorers = {as_toml(lines['documents.scorers'])}\n"
    written_out = load_settings(written(tmp_path, by_hand.replace("[selection]\n", chosen, 1)))
    named = load_settings(written(tmp_path, 'recipe = "nemotron-cc-mm"\n'))
    versions = [code_versions(stage_dag(settings), settings) for settings in (written_out, named)]
    assert versions[0] == versions[1]
    other = load_settings(written(tmp_path, 'recipe = "nemotron-cc-mm"\n[selection]\ndocument.words.min = 21\n'))
    changed = code_versions(stage_dag(other), other)
    assert [name for name in changed if changed[name] != versions[0][name]] == with_downstream("filtered", other)


def test_parsing_needs_no_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no recipe named 'x'"):
        parse_settings('recipe = "x"\n', tmp_path / "interleaved.toml")
