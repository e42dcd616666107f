"""Which part of a tensor each device of a mesh has."""

from __future__ import annotations

import pytest

from exla_opt.sharding.collectives import sources_and_targets
from exla_opt.sharding.mesh import Axis, Mesh, local_shape

GRID = Mesh("mesh", (("d", 2), ("m", 4)), tuple(range(8)))
TURNED = Mesh("mesh", (("d", 2), ("m", 4)), (0, 2, 4, 6, 1, 3, 5, 7))
D, M = GRID.axis("d"), GRID.axis("m")
MAJOR, MINOR = GRID.axis("m", 1, 2), GRID.axis("m", 2, 2)


@pytest.mark.parametrize(
    ("mesh", "axes", "groups"),
    [
        (GRID, (D,), [[0, 4], [1, 5], [2, 6], [3, 7]]),
        (GRID, (M,), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (GRID, (M, D), [[0, 4, 1, 5, 2, 6, 3, 7]]),
        (GRID, (MAJOR,), [[0, 2], [1, 3], [4, 6], [5, 7]]),
        (GRID, (MINOR, D), [[0, 4, 1, 5], [2, 6, 3, 7]]),
        (TURNED, (D,), [[0, 1], [2, 3], [4, 5], [6, 7]]),
    ],
)
def test_groups_differ_along_their_axes_alone(mesh: Mesh, axes: tuple[Axis, ...], groups: list[list[int]]) -> None:
    assert mesh.groups(axes) == groups


def test_parts_are_by_the_number_of_the_device() -> None:
    assert GRID.indices((D, MINOR)) == (0, 1, 0, 1, 2, 3, 2, 3)
    assert TURNED.indices((D,)) == (0, 1, 0, 1, 0, 1, 0, 1)


def test_axes_are_read_as_shardy_writes_them() -> None:
    text = '#sdy<list_of_axis_ref_lists[{"m":(1)2, "d"}, {}]>'
    assert GRID.read_lists(text) == [(MAJOR, D), ()]
    assert GRID.read_axes('#sdy<axis_ref_list{"m":(2)2}>') == (MINOR,)


def test_local_shapes_divide() -> None:
    assert local_shape((16, 12), ((D, MINOR), ())) == [4, 12]
    with pytest.raises(ValueError, match="a dimension of 6 is cut into 4 parts"):
        local_shape((6,), ((M,),))


def test_each_device_gets_its_part_from_one_that_has_it() -> None:
    before, after = ((D,), (M,)), ((MAJOR,), (D, MINOR))
    pairs = sources_and_targets(GRID, before, after)
    assert sorted(source for source, _ in pairs) == sorted(target for _, target in pairs) == list(range(8))
    for source, target in pairs:
        assert [GRID.index(source, axes) for axes in before] == [GRID.index(target, axes) for axes in after]
