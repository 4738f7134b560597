"""Settings of rewriting: the section ``[rewriting]`` of ``interleaved.toml``."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from interleaved_assets.rewriting.functions import BUILT_IN, load_function


class RewritingSettings(BaseModel):
    """The functions that change or drop text rows before they are scored; docs/rewriting.md explains them."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    functions: tuple[str, ...] = Field(
        default=(),
        description="Functions that rewrite texts, in the order they are applied: "
        f"{', '.join(BUILT_IN)}, or module:function, such as my_team.texts:remove_emoji. Default none: there is no "
        "stage rewritten.",
    )
    version: int = Field(default=0, ge=0)
    """Number to raise when a function of your own gives other rows than before, so that they are made again.
    Default 0."""

    @field_validator("functions")
    @classmethod
    def _functions_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in BUILT_IN:
                load_function(name)
        if len(set(names)) != len(names):
            raise ValueError("a function is named twice")
        return names
