from importlib import import_module
from pathlib import Path

from interleaved_assets.pipeline import checks
from interleaved_assets.pipeline.run.check import ShardCheck


def test_each_check_is_one_object_in_the_file_of_its_name() -> None:
    names = sorted(file.stem for file in Path(*checks.__path__).glob("[a-z]*.py"))
    for name in names:
        module = import_module(f"{checks.__name__}.{name}")
        assert [found.name for found in vars(module).values() if isinstance(found, ShardCheck)] == [name]
