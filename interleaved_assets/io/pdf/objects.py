"""Objects of a page with their place on it, those of forms (groups of objects) included."""

from collections.abc import Iterator
from ctypes import byref, c_float
from typing import Any, Final, NamedTuple

import pypdfium2.raw as raw

from interleaved_assets.io.pdf.lines import Box

_MOST_FORMS: Final = 5
"""Levels of form objects in which objects are looked for."""
_MOST_OBJECTS: Final = 50_000
"""Objects of a page that are looked at."""


class Matrix(NamedTuple):
    """An affine map: (x, y) becomes (a x + c y + e, b x + d y + f)."""

    a: float = 1
    b: float = 0
    c: float = 0
    d: float = 1
    e: float = 0
    f: float = 0

    def then(self, other: "Matrix") -> "Matrix":
        """Return the map that applies this one, then ``other``."""
        return Matrix(
            self.a * other.a + self.b * other.c,
            self.a * other.b + self.b * other.d,
            self.c * other.a + self.d * other.c,
            self.c * other.b + self.d * other.d,
            self.e * other.a + self.f * other.c + other.e,
            self.e * other.b + self.f * other.d + other.f,
        )

    def point(self, x: float, y: float) -> tuple[float, float]:
        return self.a * x + self.c * y + self.e, self.b * x + self.d * y + self.f

    def box(self, box: Box) -> Box:
        """Return the smallest box around the mapped corners of ``box``."""
        corners = [self.point(x, y) for x in (box.left, box.right) for y in (box.bottom, box.top)]
        across, up = zip(*corners, strict=True)
        return Box(min(across), min(up), max(across), max(up))


def clockwise(quarters: int) -> Matrix:
    """Return the map that turns by right angles; the origin may end up outside of the page."""
    return (Matrix(), Matrix(0, -1, 1, 0), Matrix(-1, 0, 0, -1), Matrix(0, 1, -1, 0))[quarters % 4]


def page_matrix(page: Any) -> Matrix:
    """Return the map that turns a page as its /Rotate says."""
    return clockwise(page.get_rotation() // 90)


def page_objects(page: Any, kinds: tuple[int, ...], turn: Matrix) -> Iterator[tuple[Any, Matrix]]:
    """Yield the raw objects of these kinds in the order in which they are drawn, with the map from theirs to the page.

    ``turn`` is the map of the page itself.
    """
    left = [_MOST_OBJECTS]
    top = (raw.FPDFPage_CountObjects, raw.FPDFPage_GetObject)
    yield from _walk(page.raw, top, kinds, turn, 1, left)


def _walk(
    parent: Any, calls: tuple[Any, Any], kinds: tuple[int, ...], outer: Matrix, level: int, left: list[int]
) -> Iterator[tuple[Any, Matrix]]:
    count, get = calls
    for at in range(count(parent)):
        left[0] -= 1
        if left[0] < 0:
            return
        item = get(parent, at)
        kind = raw.FPDFPageObj_GetType(item)
        if kind in kinds:
            yield item, outer
        if kind == raw.FPDF_PAGEOBJ_FORM and level < _MOST_FORMS:
            inner = object_matrix(item).then(outer)
            of_form = (raw.FPDFFormObj_CountObjects, raw.FPDFFormObj_GetObject)
            yield from _walk(item, of_form, kinds, inner, level + 1, left)


def object_matrix(item: Any) -> Matrix:
    """Return the map of the object itself."""
    found = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(item, byref(found))
    return Matrix(found.a, found.b, found.c, found.d, found.e, found.f)


def object_box(item: Any, outer: Matrix) -> Box:
    """Return the place of an object on the turned page."""
    sides = [c_float() for _ in range(4)]
    raw.FPDFPageObj_GetBounds(item, *(byref(side) for side in sides))
    return outer.box(Box(*(side.value for side in sides)))
