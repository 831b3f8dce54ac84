"""Every point has one owner; borders are where points of two owners are neighbours, and nowhere else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.examples.applications.decomposition import (
    Block,
    Region,
    borders,
    cuts,
    grid_blocks,
    most_square,
    row_blocks,
    strip_blocks,
)
from koala.examples.applications.errors import ApplicationError
from koala.examples.applications.laplace import quarters
from koala.examples.applications.poisson import BLACK, RED, chess_board

Point = tuple[int, int]


@st.composite
def squares(draw: st.DrawFn) -> tuple[int, list[Block]]:
    """A size and its blocks, of any kind; a master that owns nothing may be among them."""
    size = draw(st.integers(1, 20))
    kind = draw(st.sampled_from(("grid", "rows", "strips")))
    try:
        if kind == "grid":
            return size, grid_blocks(size, draw(st.integers(1, 5)), draw(st.integers(1, 5)))
        if kind == "rows":
            return size, [Block(0, 0, 0, 0), *row_blocks(size, draw(st.integers(1, 8)))]
        return size, strip_blocks(size, draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    except ApplicationError:
        return size, grid_blocks(size, 1, 1)


def owners(size: int, blocks: list[Block]) -> npt.NDArray[np.int_]:
    counted = np.zeros((size, size), dtype=int)
    for block in blocks:
        counted[block.region] += 1
    return counted


def points(block: Block, region: Region) -> list[Point]:
    """The points of the square that a region of a block's array with a rim stands for."""
    rows, columns = region
    return [
        (block.top + row - 1, block.left + column - 1)
        for row in range(rows.start, rows.stop)
        for column in range(columns.start, columns.stop)
    ]


@settings(deadline=None)
@given(squares())
def test_every_point_is_owned_once(square: tuple[int, list[Block]]) -> None:
    size, blocks = square
    assert (owners(size, blocks) == 1).all()


@settings(deadline=None)
@given(squares())
def test_borders_are_exactly_where_points_of_two_blocks_are_neighbours(square: tuple[int, list[Block]]) -> None:
    size, blocks = square
    owner = {
        point: index
        for index, block in enumerate(blocks)
        for point in np.ndindex(size, size)
        if block.top <= point[0] < block.bottom and block.left <= point[1] < block.right
    }
    for index, block in enumerate(blocks):
        wanted = {
            (owner[there], here, there)
            for here, its_owner in owner.items()
            if its_owner == index
            for step in ((-1, 0), (1, 0), (0, -1), (0, 1))
            if owner.get(there := (here[0] + step[0], here[1] + step[1]), index) != index
        }
        found = {
            (border.neighbour, here, there)
            for border in borders(blocks, index)
            for here, there in zip(points(block, border.own), points(block, border.theirs), strict=True)
        }
        assert found == wanted


@settings(deadline=None)
@given(squares())
def test_what_one_side_of_a_border_sends_is_what_the_other_expects(square: tuple[int, list[Block]]) -> None:
    _, blocks = square
    sent = {
        (index, border.neighbour): points(block, border.own)
        for index, block in enumerate(blocks)
        for border in borders(blocks, index)
    }
    expected = {
        (border.neighbour, index): points(block, border.theirs)
        for index, block in enumerate(blocks)
        for border in borders(blocks, index)
    }
    assert sent == expected


@given(st.integers(0, 1000), st.integers(1, 50))
def test_equal_pieces_differ_by_one_at_most(length: int, parts: int) -> None:
    sizes = [end - start for start, end in cuts(length, [1] * parts)]
    assert sum(sizes) == length
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("processes", "grid"),
    [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (7, (1, 7)), (8, (2, 4)), (36, (6, 6)), (72, (8, 9))],
)
def test_processes_form_a_grid_as_near_to_a_square_as_can_be(processes: int, grid: tuple[int, int]) -> None:
    assert most_square(processes) == grid


def test_clusters_of_equal_size_get_strips_of_equal_width_and_rectangles_of_equal_size() -> None:
    blocks = strip_blocks(72, [9, 9, 9, 9])
    assert {(block.rows, block.columns) for block in blocks} == {(8, 18)}
    for cluster in range(4):
        strip = blocks[9 * cluster : 9 * cluster + 9]
        assert {(block.left, block.right) for block in strip} == {(18 * cluster, 18 * cluster + 18)}


def test_a_larger_cluster_gets_a_wider_strip() -> None:
    blocks = strip_blocks(60, [4, 2])
    assert max(block.right for block in blocks[:4]) == min(block.left for block in blocks[4:]) == 40


def test_a_square_with_too_few_points_for_the_processes_is_refused() -> None:
    with pytest.raises(ApplicationError, match=r"--size 3: too few points for 4 processes; use a larger size"):
        grid_blocks(3, 1, 4)
    with pytest.raises(ApplicationError, match=r"--size 2: too few points for 3 processes; use a larger size"):
        strip_blocks(2, [1, 1, 1])


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 3), st.integers(1, 3))
def test_every_point_is_in_one_phase_and_quarters_of_a_phase_do_not_touch(size: int, rows: int, columns: int) -> None:
    if size < max(rows, columns):
        return
    phase = np.full((size, size), -1)
    quarter = np.full((size, size), -1)
    names = iter(range(4 * rows * columns))
    for block in grid_blocks(size, rows, columns):
        for number, pair in enumerate(quarters(block)):
            for region in pair:
                assert (phase[block.region][region] == -1).all()
                phase[block.region][region] = number
                quarter[block.region][region] = next(names)
    assert (phase >= 0).all()
    for axis in (0, 1):
        one = np.take(phase, range(size - 1), axis), np.take(quarter, range(size - 1), axis)
        other = np.take(phase, range(1, size), axis), np.take(quarter, range(1, size), axis)
        # A block of one row or column has quarters without points, so that two of the same phase meet.
        if size >= 2 * max(rows, columns):
            assert ((one[1] == other[1]) | (one[0] != other[0])).all()


@settings(deadline=None)
@given(squares())
def test_the_colours_of_all_blocks_make_one_chess_board(square: tuple[int, list[Block]]) -> None:
    size, blocks = square
    board = np.full((size, size), -1)
    for block in blocks:
        for colour in (BLACK, RED):
            for part in chess_board(block, colour):
                board[block.region][part] = colour
    rows, columns = np.indices(board.shape)
    assert (board == (rows + columns) % 2).all()
