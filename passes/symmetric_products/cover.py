"""A cover of all pairs of n indices, each in one tile, by tiles of one shape.

The indices form a ring of an odd number of blocks. Every block of rows is paired with itself and with the half of the
other blocks that follow it: of two blocks exactly one follows the other so. In a ring that is longer than n, the last
indices occur twice.

    5 blocks, the rows of each and the columns of its window, which may be cut into chunks:

        0 | 0 1 2            3 | 3 4 0
        1 | 1 2 3            4 | 4 0 1
        2 | 2 3 4
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Rows of a tile: products of fewer are slow, and of more no faster.
_ROWS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_MOST_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class Cover:
    """`blocks` blocks of `rows` indices each, and windows of `chunks` chunks of `columns` indices.

    size: the number of indices before the last ones are repeated.
    """

    size: int
    blocks: int
    rows: int
    chunks: int
    columns: int

    @property
    def ring(self) -> int:
        """The length of the ring."""
        return self.blocks * self.rows

    @property
    def twice(self) -> int:
        """The number of indices, the last ones, that occur in the ring twice."""
        return self.ring - self.size

    @property
    def beyond(self) -> int:
        """The number of indices beyond the end of the ring that a window reaches."""
        return self.chunks * self.columns - self.rows

    @property
    def trips(self) -> int:
        """The number of tiles."""
        return self.blocks * self.chunks

    @property
    def tile(self) -> int:
        """The number of elements of a tile."""
        return self.rows * self.columns


def covers(size: int, most: int, longest: int) -> Iterator[Cover]:
    """The covers of the pairs of `size` indices by tiles of at most `most` elements and `longest` columns."""
    for rows in _ROWS:
        for chunks in range(1, _MOST_CHUNKS + 1):
            blocks_of_chunk = (size // rows + 1) // (2 * chunks)
            blocks = 2 * chunks * blocks_of_chunk - 1
            if blocks < 3:
                break
            length = -(-size // blocks)
            found = Cover(size, blocks, length, chunks, blocks_of_chunk * length)
            if found.tile <= most and found.columns <= longest and 4 * found.twice <= size:
                yield found
