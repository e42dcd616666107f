"""Rewrites rng_bit_generator as elementwise ops on an iota: then every slice can be computed alone.

Both generators are functions of a key and a counter (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
as 1, 2, 3", 2011): Philox4x32-10 computes four 32-bit words from a 128-bit counter, Threefry2x32-20 two words from a
64-bit one. The layout of the words, and the next state, are those of XLA's own expansion of the op, for CPUs and GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build

# The default is Philox where XLA expands the op, on CPUs and GPUs.
_PHILOX = ("PHILOX", "DEFAULT")
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)
_PHILOX_ROUNDS = 10
_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_THREEFRY_PARITY = 0x1BD11BDA
_WIDTHS = (8, 16, 32, 64)


def draw(op: ir.Operation) -> tuple[ir.Value, ir.Value] | None:
    """The next state of an rng_bit_generator and its bits, in other ops at the insertion point.

    None, without new ops, for another op, algorithm or type, a state not of two or three ui64, scalar or empty bits.
    """
    if op.name != "stablehlo.rng_bit_generator":
        return None
    algorithm = stablehlo.RngAlgorithmAttr(op.attributes["rng_algorithm"]).value
    kind, state = build.tensor_of(op.results[1]), op.operands[0]
    states = build.shape_of(state)
    if not isinstance(kind.element_type, ir.IntegerType) or str(build.tensor_of(state).element_type) != "ui64":
        return None
    element = ir.IntegerType(kind.element_type)
    if element.width not in _WIDTHS or not kind.rank or not prod(kind.shape):
        return None
    if algorithm in _PHILOX and states in ([2], [3]):
        return _philox(state, kind, element)
    if algorithm == "THREE_FRY" and states == [2]:
        return _threefry(state, kind, element)
    return None


def _philox(state: ir.Value, kind: ir.RankedTensorType, element: ir.IntegerType) -> tuple[ir.Value, ir.Value]:
    """The four 32-bit words, or two 64-bit ones, of each counter are contiguous in memory.

    If a number of counters exactly fills a few slices of a dimension, their words are computed in one dimension.
    Otherwise each element computes all words of its counter and keeps one.
    """
    shape, words = list(kind.shape), 2 if element.width == 64 else 4
    groups = _filled(shape, words)
    if groups is None:
        index = _index(shape)
        found = _philox_words(state, _divided(index, words), words)
        bits = _one_of(found, stablehlo.and_(index, build.splat(index.type, words - 1)))
    else:
        bits = _interleaved(_philox_words(state, _index(groups), words), len(groups))
        bits = stablehlo.reshape(build.with_shape(build.tensor_of(bits), shape), bits)
    return _philox_state(state, -(-prod(shape) // words)), build.convert(bits, element)


def _filled(shape: list[int], words: int) -> list[int] | None:
    """The shape of the counters that exactly fill a tensor, with an own last dimension; None if there is none."""
    for dim in reversed(range(len(shape))):
        inside = prod(shape[dim + 1 :])
        slices = words // gcd(inside, words)
        if shape[dim] % slices == 0:
            return [*shape[:dim], shape[dim] // slices, inside * slices // words]
    return None


def _divided(index: ir.Value, words: int) -> ir.Value:
    return stablehlo.shift_right_logical(index, build.splat(index.type, words.bit_length() - 1))


def _one_of(words: Sequence[ir.Value], place: ir.Value) -> ir.Value:
    """The word of each element, by its index."""
    chosen = words[0]
    for number, word in enumerate(words[1:], 1):
        chosen = stablehlo.select(_compared("EQ", place, build.splat(place.type, number)), word, chosen)
    return chosen


def _philox_words(state: ir.Value, index: ir.Value, count: int) -> list[ir.Value]:
    """The words of the counters at these distances from the state's; four of 32 bits or two of 64."""
    shape = build.shape_of(index)
    key, low, high = _philox_numbers(state)
    low_words = stablehlo.add(build.broadcast(low, shape), index)
    carry = build.convert(_below(low_words, index), _unsigned(64))
    high_words = stablehlo.add(build.broadcast(high, shape), carry)
    found = [*_halves(low_words), *_halves(high_words)]
    keys = [build.broadcast(half, shape) for half in _halves(key)]
    for _ in range(_PHILOX_ROUNDS):
        (low0, high0), (low1, high1) = (
            _product(found[place], number) for place, number in zip((0, 2), _PHILOX_MULTIPLIERS, strict=True)
        )
        found = [_xor(high1, found[1], keys[0]), low1, _xor(high0, found[3], keys[1]), low0]
        keys = [stablehlo.add(k, build.splat(k.type, step)) for k, step in zip(keys, _PHILOX_STEPS, strict=True)]
    return found if count == 4 else [_joined(*found[:2]), _joined(*found[2:])]


def _philox_numbers(state: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The key, and the low and the high half of the counter, which is the key again in a state of two numbers."""
    key, low = (_number(state, place) for place in (0, 1))
    return key, low, _number(state, 2) if build.shape_of(state) == [3] else key


def _philox_state(state: ir.Value, counters: int) -> ir.Value:
    """The state after this many counters."""
    key, low, high = _philox_numbers(state)
    count = build.splat(low.type, counters)
    after = [key, stablehlo.add(low, count)]
    if build.shape_of(state) == [3]:
        after.append(stablehlo.add(high, build.convert(_below(after[1], count), _unsigned(64))))
    return _vector(after)


def _threefry(state: ir.Value, kind: ir.RankedTensorType, element: ir.IntegerType) -> tuple[ir.Value, ir.Value]:
    """One counter gives a 64-bit element, or two neighbours along the first even dimension, else the longest.

    If no dimension is even, each element computes both words of its counter and keeps one.
    """
    shape = list(kind.shape)
    key, counter = (_number(state, place) for place in (0, 1))
    dim = next((place for place, size in enumerate(shape) if size % 2 == 0), shape.index(max(shape)))
    groups = shape if element.width == 64 else [*shape[:dim], -(-shape[dim] // 2), *shape[dim + 1 :]]
    is_odd = element.width < 64 and bool(shape[dim] % 2)
    index = _index(shape, dim) if is_odd else _index(groups)
    inputs = _halves(stablehlo.add(build.broadcast(counter, build.shape_of(index)), index))
    found = _threefry_words(inputs, [build.broadcast(half, build.shape_of(index)) for half in _halves(key)])
    after = _vector([key, stablehlo.add(counter, build.splat(counter.type, prod(groups)))])
    if element.width == 64:
        return after, build.convert(_joined(*found), element)
    if is_odd:
        place = stablehlo.iota(build.tensor_of(index), dim)
        return after, build.convert(_one_of(found, stablehlo.and_(place, build.splat(place.type, 1))), element)
    return after, build.convert(_interleaved(found, dim + 1), element)


def _threefry_words(words: list[ir.Value], keys: list[ir.Value]) -> list[ir.Value]:
    schedule = [*keys, _xor(*keys, build.splat(keys[0].type, _THREEFRY_PARITY))]
    words = [stablehlo.add(word, key) for word, key in zip(words, schedule[:2], strict=True)]
    for group in range(5):
        for rotation in _THREEFRY_ROTATIONS[group % 2]:
            total = stablehlo.add(*words)
            words = [total, _xor(_rotated(words[1], rotation), total)]
        added = stablehlo.add(schedule[(group + 2) % 3], build.splat(words[1].type, group + 1))
        words = [stablehlo.add(words[0], schedule[(group + 1) % 3]), stablehlo.add(words[1], added)]
    return words


def _unsigned(bits: int) -> ir.Type:
    return ir.IntegerType.get_unsigned(bits)


def _number(state: ir.Value, place: int) -> ir.Value:
    """One number of the state, as a 0-d tensor."""
    one = stablehlo.slice(state, [place], [place + 1], [1])
    return stablehlo.reshape(build.with_shape(build.tensor_of(state), []), one)


def _vector(numbers: Sequence[ir.Value]) -> ir.Value:
    kind = build.tensor_of(numbers[0])
    ones = [stablehlo.reshape(build.with_shape(kind, [1]), number) for number in numbers]
    return stablehlo.ConcatenateOp(ones, 0, results=[build.with_shape(kind, [len(ones)])]).result


def _index(shape: Sequence[int], halved: int | None = None) -> ir.Value:
    """The memory index of every element, in ui64; for a tensor half as long along `halved`, if given."""
    kind = ir.RankedTensorType.get(list(shape), _unsigned(64))
    strided = [-(-size // 2) if dim == halved else size for dim, size in enumerate(shape)]

    def counted(dim: int) -> ir.Value:
        places = stablehlo.iota(kind, dim)
        return _divided(places, 2) if dim == halved else places

    total = counted(len(shape) - 1)
    for dim, size in enumerate(shape[:-1]):
        if size > 1:
            stride = build.splat(kind, prod(strided[dim + 1 :]))
            total = stablehlo.add(stablehlo.multiply(counted(dim), stride), total)
    return total


def _below(left: ir.Value, right: ir.Value) -> ir.Value:
    return _compared("LT", left, right)


def _compared(how: str, left: ir.Value, right: ir.Value) -> ir.Value:
    return build.compare(left, right, how, "UNSIGNED")


def _halves(number: ir.Value) -> list[ir.Value]:
    """The low and the high 32 bits."""
    shifted = stablehlo.shift_right_logical(number, build.splat(number.type, 32))
    return [build.convert(number, _unsigned(32)), build.convert(shifted, _unsigned(32))]


def _joined(low: ir.Value, high: ir.Value) -> ir.Value:
    wide = build.convert(high, _unsigned(64))
    return stablehlo.or_(build.convert(low, _unsigned(64)), stablehlo.shift_left(wide, build.splat(wide.type, 32)))


def _product(word: ir.Value, number: int) -> list[ir.Value]:
    wide = build.convert(word, _unsigned(64))
    return _halves(stablehlo.multiply(wide, build.splat(wide.type, number)))


def _xor(first: ir.Value, *others: ir.Value) -> ir.Value:
    for other in others:
        first = stablehlo.xor(first, other)
    return first


def _rotated(word: ir.Value, bits: int) -> ir.Value:
    left = stablehlo.shift_left(word, build.splat(word.type, bits))
    return stablehlo.or_(left, stablehlo.shift_right_logical(word, build.splat(word.type, 32 - bits)))


def _interleaved(words: Sequence[ir.Value], dim: int) -> ir.Value:
    """The words of each counter interleaved: stacked in a new dimension `dim`, which is merged into the one before."""
    kind = build.tensor_of(words[0])
    shape = list(kind.shape)
    dims = [place + (place >= dim) for place in range(len(shape))]
    one = build.with_shape(kind, [*shape[:dim], 1, *shape[dim:]])
    columns = [stablehlo.broadcast_in_dim(one, word, ir.DenseI64ArrayAttr.get(dims)) for word in words]
    several = build.with_shape(kind, [*shape[:dim], len(words), *shape[dim:]])
    together = stablehlo.ConcatenateOp(columns, dim, results=[several]).result
    merged = [*shape[: dim - 1], shape[dim - 1] * len(words), *shape[dim:]]
    return stablehlo.reshape(build.with_shape(kind, merged), together)
