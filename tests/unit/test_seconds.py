"""The seconds of a block, by figures that were worked out by hand."""

from __future__ import annotations

from math import isclose

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function
from exla_opt.memory import called_functions, convolution_seconds
from exla_opt.memory.machine import CPU, GPU, Machine, as_written, machine_of
from exla_opt.memory.operation import moved_type
from exla_opt.memory.reading import read_block
from exla_opt.memory.seconds import seconds_of, seconds_of_ops, seconds_of_sum, seconds_to_take

H200 = machine_of("cuda:h200")
BANDWIDTH, KERNEL = 0.85 * 4.8e12, 2.2e-6


def seconds(text: str, machine: Machine = H200) -> float:
    with new_context() as context:
        module = parse_module("test", text.encode(), context).module
        block = main_function(module).regions[0].blocks[0]
        return seconds_of(read_block(block, Types(), machine), machine)


WIDE, NARROW, ROWS = "tensor<8192x8192xf32>", "tensor<8192x8192xbf16>", "tensor<8192xf32>"
SOFTMAX = f"""func.func @main(%x: {NARROW}) -> {NARROW} {{
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %w = stablehlo.convert %x : ({NARROW}) -> {WIDE}
  %m = stablehlo.reduce(%w init: %low) applies stablehlo.maximum across dimensions = [1] : ({WIDE}, tensor<f32>) -> {ROWS}
  %n = stablehlo.broadcast_in_dim %m, dims = [0] : ({ROWS}) -> {WIDE}
  %d = stablehlo.subtract %w, %n : {WIDE}
  %e = stablehlo.exponential %d : {WIDE}
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : ({WIDE}, tensor<f32>) -> {ROWS}
  %t = stablehlo.broadcast_in_dim %s, dims = [0] : ({ROWS}) -> {WIDE}
  %q = stablehlo.divide %e, %t : {WIDE}
  %r = stablehlo.convert %q : ({WIDE}) -> {NARROW}
  return %r : {NARROW}
}}"""


def product(dtype: str, rows: int = 4096) -> str:
    left, kind = f"tensor<{rows}x4096x{dtype}>", f"tensor<4096x4096x{dtype}>"
    return (
        f"func.func @main(%a: {left}, %b: {kind}) -> {left} {{\n"
        f"%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({left}, {kind}) -> {left}\n"
        f"return %r : {left}\n}}"
    )


def convolution(ins: int, outs: int, groups: int = 1, is_flat: bool = False) -> str:
    """A 3 x 3 convolution to 64 x 64 positions. is_flat: whether its weights come in one dimension."""
    image, result = f"tensor<1x64x64x{ins}xf32>", f"tensor<1x64x64x{outs}xf32>"
    weights = f"tensor<3x3x{ins // groups}x{outs}xf32>"
    given = f"tensor<{9 * ins // groups * outs}xf32>" if is_flat else weights
    return f"""func.func @main(%x: {image}, %v: {given}) -> {result} {{
  %w = stablehlo.reshape %v : ({given}) -> {weights}
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}
    : ({image}, {weights}) -> {result}
  return %r : {result}
}}"""


def loop(trips: int, part: int = 2**12) -> str:
    """Slices of 4 x part bytes, each negated and written to its place."""
    whole, tile, number = f"tensor<{2**22}xf32>", f"tensor<{part}xf32>", "tensor<i32>"
    return f"""func.func @main(%x: {whole}, %y: {whole}) -> {whole} {{
  %zero = stablehlo.constant dense<0> : {number}
  %one = stablehlo.constant dense<1> : {number}
  %trips = stablehlo.constant dense<{trips}> : {number}
  %r:2 = stablehlo.while(%i = %zero, %z = %y) : {number}, {whole}
  cond {{
    %more = stablehlo.compare LT, %i, %trips : ({number}, {number}) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %s = stablehlo.dynamic_slice %x, %i, sizes = [{part}] : ({whole}, {number}) -> {tile}
    %n = stablehlo.sine %s : {tile}
    %u = stablehlo.dynamic_update_slice %z, %n, %i : ({whole}, {tile}, {number}) -> {whole}
    %next = stablehlo.add %i, %one : {number}
    stablehlo.return %next, %u : {number}, {whole}
  }}
  return %r#1 : {whole}
}}"""


def test_a_row_softmax_of_bf16_is_one_kernel_that_reads_and_writes_two_bytes_an_element() -> None:
    assert isclose(seconds(SOFTMAX), 4 * 8192**2 / BANDWIDTH + KERNEL, rel_tol=0.01)


@pytest.mark.parametrize(("dtype", "peak"), [("bf16", 0.65 * 989e12), ("f64", 0.65 * 67e12)])
def test_a_product_takes_its_operations_at_the_speed_of_its_type(dtype: str, peak: float) -> None:
    assert isclose(seconds(product(dtype)), 2 * 4096**3 / peak + KERNEL)


def test_a_product_with_few_rows_takes_the_time_to_read_the_matrix() -> None:
    moved = 2 * (4096 * 4096 + 2 * 16 * 4096)
    assert isclose(seconds(product("bf16", rows=16)), moved / BANDWIDTH + KERNEL)


def test_a_cpu_multiplies_few_rows_at_a_part_of_its_speed() -> None:
    """32 rows take the time of 64 at full speed, and the result of 32 x 4096 is 32 times that of half the speed."""
    work = 2 * 32 * 4096**2 / CPU.flops_of("f32")
    assert isclose(seconds(product("f32", rows=32), CPU), (2 + 1 / 32) * work + CPU.seconds_per_kernel)


@pytest.mark.parametrize(("side", "slower"), [(1024, 1 + 1 / 256), (128, 1 + 1 / 4), (32, 2 + 2 * (4**0.5 - 1) + 1)])
def test_a_cpu_multiplies_into_few_elements_at_a_part_of_its_speed(side: int, slower: float) -> None:
    """However long the sums are; it adds twice the time of the product at most, to what few rows add."""
    batch, terms = 16, 65536
    one, result = f"tensor<{batch}x{side}x{terms}xf32>", f"tensor<{batch}x{side}x{side}xf32>"
    text = (
        f"func.func @main(%a: {one}, %b: {one}) -> {result} {{\n%r = stablehlo.dot_general %a, %b, "
        f"batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({one}, {one}) -> {result}\nreturn %r : {result}\n}}"
    )
    work = 2 * batch * side * side * terms / CPU.flops_of("f32")
    assert isclose(seconds(text, CPU), slower * work + CPU.seconds_per_kernel)


def test_short_runs_take_the_time_of_their_cache_lines() -> None:
    """Columns of a matrix: of 2 of its f32, each run is an eighth of a line; rows are contiguous."""

    def sliced(rows: int, columns: int) -> float:
        kind, part = "tensor<4096x4096xf32>", f"tensor<{rows}x{columns}xf32>"
        text = (
            f"func.func @main(%x: {kind}, %i: tensor<i32>) -> {part} {{\n"
            f"%s = stablehlo.dynamic_slice %x, %i, %i, sizes = [{rows}, {columns}] : ({kind}, tensor<i32>, tensor<i32>)"
            f" -> {part}\n%r = stablehlo.negate %s : {part}\nreturn %r : {part}\n}}"
        )
        return seconds(text, CPU) - CPU.seconds_per_kernel

    size = 4 * 4096 * 2
    assert isclose(sliced(4096, 2), (8 + 1) * size / CPU.bytes_per_second)
    assert isclose(sliced(4096, 16), 8 * 2 * size / CPU.bytes_per_second)
    assert isclose(sliced(2, 4096), 2 * size / CPU.bytes_per_second)


def test_no_update_takes_longer_than_all_that_is_updated() -> None:
    def updated(columns: int) -> float:
        whole, part = "tensor<1000000x2xf32>", f"tensor<1000000x{columns}xf32>"
        text = (
            f"func.func @main(%x: {whole}, %u: {part}, %i: tensor<i32>) -> {whole} {{\n"
            f"%r = stablehlo.dynamic_update_slice %x, %u, %i, %i : ({whole}, {part}, tensor<i32>, tensor<i32>) -> {whole}\n"
            f"return %r : {whole}\n}}"
        )
        return seconds(text, CPU)

    assert updated(1) <= updated(2)


def test_a_sort_takes_n_log_n_comparisons_and_a_top_k_mostly_one_look() -> None:
    kind, taken = "tensor<1024x4096xf32>", "tensor<1024x8xf32>"
    text = f"""func.func @main(%x: {kind}) -> {kind} {{
      %r = "stablehlo.sort"(%x) <{{dimension = 1 : i64}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }}) : ({kind}) -> {kind}
      return %r : {kind}
    }}"""
    assert isclose(seconds(text, CPU), 1024 * 4096 * 12 * CPU.seconds_per_comparison + CPU.seconds_per_kernel)
    top = f"""func.func @main(%x: {kind}) -> ({taken}, tensor<1024x8xi32>) {{
      %v, %i = chlo.top_k(%x, k = 8) : {kind} -> ({taken}, tensor<1024x8xi32>)
      return %v, %i : {taken}, tensor<1024x8xi32>
    }}"""
    assert seconds(top, CPU) < seconds(text, CPU) / 20
    # Merging the best of every tile costs more the shorter the tiles are.
    assert seconds_to_take(2**20, 64, 8, CPU) > 3 * seconds_to_take(2**20, 4096, 8, CPU)


@pytest.mark.parametrize(("indices", "dim"), [("100000x1", 1), ("100000", 1), ("1x100000", 0)])
def test_a_cpu_scatters_window_by_window(indices: str, dim: int) -> None:
    """However the indices of the windows lie: 5 ns for each, and half for each element."""
    whole, index, part = "tensor<4096xf32>", f"tensor<{indices}xi32>", "tensor<100000xf32>"
    text = f"""func.func @main(%x: {whole}, %i: {index}, %u: {part}) -> {whole} {{
      %r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = {dim}>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }}) : ({whole}, {index}, {part}) -> {whole}
      return %r : {whole}
    }}"""
    assert isclose(seconds(text, CPU), 100_000 * 5.5e-9 + CPU.seconds_per_kernel, rel_tol=0.1)


def test_a_slice_and_an_update_move_their_own_part() -> None:
    part = 2**20
    once = seconds(loop(1, part))
    # Slice, sine and update: one kernel that reads 4 MiB and writes them; and the counter's.
    assert isclose(once, 2 * 4 * part / BANDWIDTH + 2 * KERNEL + 1e-6, rel_tol=0.01)
    assert isclose(seconds(loop(7, part)), 7 * once)


def test_what_was_just_written_is_read_from_the_cache() -> None:
    kind = "tensor<1024x1024xf32>"
    text = (
        f"func.func @main(%a: {kind}) -> {kind} {{\n"
        f"%s = stablehlo.transpose %a, dims = [1, 0] : ({kind}) -> {kind}\n"
        f"%p = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}\n"
        f"%r = stablehlo.sine %p : {kind}\n"
        f"return %r : {kind}\n}}"
    )
    size = 4 * 1024**2
    product_of = max(2 * 1024**3 / (0.65 * 494e12), 2 * size / BANDWIDTH)
    assert isclose(seconds(text), product_of + size / BANDWIDTH + size / 7e12 + 2 * KERNEL, rel_tol=0.01)


def test_a_product_on_a_gpu_is_added_to_the_sum_by_its_own_kernel() -> None:
    assert isclose(seconds_of_sum(10**9, True, H200), 10**9 / BANDWIDTH)
    assert isclose(seconds_of_sum(10**9, False, H200), 3 * 10**9 / BANDWIDTH + KERNEL)
    assert isclose(seconds_of_sum(10**9, True, CPU), 3 * 10**9 / 8e9 + CPU.seconds_per_kernel)


def test_a_cpu_writes_what_a_library_sums_before_others_read_it() -> None:
    """The library computes a sum and what is read of it in one kernel, in no less time than in two."""
    some = f"tensor<4x{WIDE.removeprefix('tensor<')}"
    text = f"""func.func @main(%x: {some}) -> {WIDE} {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : ({some}, tensor<f32>) -> {WIDE}
      %n = stablehlo.negate %s : {WIDE}
      return %n : {WIDE}
    }}"""
    whole = 4 * 8192**2
    assert isclose(seconds(text, CPU), (4 + 1 + 1 + 1) * whole / CPU.bytes_per_second, rel_tol=0.01)


@pytest.mark.skipif(not moved_type("bf16", CPU), reason="this XLA:CPU updates bf16 in place")
def test_an_update_of_narrow_floats_widens_all_that_is_updated() -> None:
    def updated(dtype: str) -> float:
        whole, part = f"tensor<4096x4096x{dtype}>", f"tensor<16x4096x{dtype}>"
        text = (
            f"func.func @main(%x: {whole}, %u: {part}, %i: tensor<i32>) -> {whole} {{\n"
            f"%r = stablehlo.dynamic_update_slice %x, %u, %i, %i : ({whole}, {part}, tensor<i32>, tensor<i32>) -> {whole}\n"
            f"return %r : {whole}\n}}"
        )
        return seconds(text, CPU)

    assert updated("bf16") > 50 * updated("f32")


@pytest.mark.parametrize(
    ("machine", "rows", "speed"), [(CPU, 8192, 8e9), (CPU, 1024, 2.5e10), (CPU, 512, 1e11), (GPU, 8192, 4.08e12)]
)
def test_a_product_with_a_vector_takes_as_long_as_it_reads_its_matrix(
    machine: Machine, rows: int, speed: float
) -> None:
    """Of any shape alike, as for the arithmetic that a module is allowed."""
    kind = f"tensor<{rows}x{rows}xf32>"
    text = (
        f"func.func @main(%a: {kind}, %v: tensor<{rows}xf32>) -> tensor<{rows}xf32> {{\n%r = stablehlo.dot_general %a, %v, "
        f"contracting_dims = [1] x [0] : ({kind}, tensor<{rows}xf32>) -> tensor<{rows}xf32>\nreturn %r : tensor<{rows}xf32>\n}}"
    )
    with new_context() as context:
        module = parse_module("<product>", text.encode(), context).module
        block = read_block(main_function(module).regions[0].blocks[0], Types(), machine)
    [found, *_] = seconds_of_ops(block, machine, any_shape=True)
    assert isclose(found, (rows * rows + rows) * 4 / speed, rel_tol=0.05)


@pytest.mark.parametrize(
    ("left", "right", "numbers", "by_vector"),
    [
        ("64x32", "32", "contracting_dims = [1] x [0]", True),
        ("32", "32x64", "contracting_dims = [0] x [0]", True),
        ("4x64x32", "4x32x1", "batching_dims = [0] x [0], contracting_dims = [2] x [1]", True),
        ("64x32", "32x8", "contracting_dims = [1] x [0]", False),
        ("64", "8", "contracting_dims = [] x []", False),
    ],
)
def test_which_products_have_a_vector(left: str, right: str, numbers: str, by_vector: bool) -> None:
    with new_context() as context:
        kinds = f"tensor<{left}xf32>, %b: tensor<{right}xf32>"
        result = {"64x32": "64", "32": "64", "4x64x32": "4x64x1", "64": "64x8"}[left]
        result = "64x8" if (left, right) == ("64x32", "32x8") else result
        text = (
            f"func.func @main(%a: {kinds}) -> tensor<{result}xf32> {{\n%r = stablehlo.dot_general %a, %b, {numbers} : "
            f"(tensor<{left}xf32>, tensor<{right}xf32>) -> tensor<{result}xf32>\nreturn %r : tensor<{result}xf32>\n}}"
        )
        module = parse_module("<product>", text.encode(), context).module
        block = read_block(main_function(module).regions[0].blocks[0], Types(), CPU)
    assert block.ops[0].by_vector == by_vector


@pytest.mark.parametrize(("ins", "outs"), [(64, 1), (64, 64), (3, 8)])
def test_a_cpu_copies_what_a_convolution_reads_once_for_all_features(ins: int, outs: int) -> None:
    elements = 64 * 64 * 9 * ins
    arithmetic, copies = 2 * elements * outs / 1.5e11, elements * (1e-10 + 2.4e-9 / ins)
    found = seconds(convolution(ins, outs), as_written(CPU))
    assert isclose(found, arithmetic + copies, rel_tol=0.01)


@pytest.mark.parametrize(
    ("ins", "outs", "groups", "is_slow"),
    [
        (3, 32, 1, True),
        (3, 80, 1, True),
        (6, 64, 2, True),
        (3, 64, 1, False),
        (3, 40, 1, False),
        (3, 16, 1, False),
        (4, 32, 1, False),
        (1, 32, 1, False),
    ],
)
def test_convolutions_of_an_odd_number_of_features_are_slow_before_jaxlib_0_12(
    monkeypatch: pytest.MonkeyPatch, ins: int, outs: int, groups: int, is_slow: bool
) -> None:
    times = []
    for release in ((0, 11), (0, 12)):
        monkeypatch.setattr(convolution_seconds, "JAXLIB", release)
        times.append(seconds(convolution(ins, outs, groups=groups), as_written(CPU)))
    assert times[0] > 2 * times[1] if is_slow else times[0] == times[1]


def test_of_many_features_an_odd_number_is_about_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_seconds, "JAXLIB", (0, 11))
    odd, even = (seconds(convolution(ins, 32), as_written(CPU)) for ins in (65, 66))
    assert odd < 1.5 * even


def test_each_group_of_a_convolution_copies_its_own_features() -> None:
    groups = [seconds(convolution(64, 64, groups=groups), as_written(CPU)) for groups in (1, 64)]
    elements = 64 * 64 * 9 * 64
    arithmetic, copies = 2 * elements / 1.5e11, elements * (1e-10 + 2.4e-9)
    assert isclose(groups[1], arithmetic + copies, rel_tol=0.01)
    assert groups[1] > groups[0]


def test_runs_of_one_feature_are_slow_only_where_the_features_are_last() -> None:
    """A program in slices of one feature, which came first, took 112 ms; with runs of one, 1.6 s were predicted."""
    last = convolution(1, 1)
    first = last.replace("[b, 0, 1, f]x", "[b, f, 0, 1]x").replace("->[b, 0, 1, f]", "->[b, f, 0, 1]")
    first = first.replace("1x64x64x1x", "1x1x64x64x")
    times = [seconds(text, as_written(CPU)) for text in (last, first)]
    assert 5 * times[1] < times[0]


def test_the_features_of_a_kernel_are_known_behind_a_reshape() -> None:
    assert isclose(*(seconds(convolution(3, 8, is_flat=is_flat), as_written(CPU)) for is_flat in (False, True)))


def test_a_plan_prices_convolutions_by_their_products_alone() -> None:
    few, many = (seconds(convolution(64, outs), CPU) for outs in (8, 64))
    assert isclose(8 * few, many, rel_tol=0.02)


@pytest.mark.parametrize(
    ("name", "dtype", "release", "nanoseconds"),
    [
        ("sine", "f32", (0, 11), 17),
        ("sine", "f32", (0, 12), 0),
        ("cbrt", "f64", (0, 12), 38),
        ("exponential", "f32", (0, 11), 0),
    ],
)
def test_a_cpu_calls_some_functions_for_each_element(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: str, release: tuple[int, int], nanoseconds: int
) -> None:
    monkeypatch.setattr(called_functions, "JAXLIB", release)
    kind = f"tensor<1000x1000x{dtype}>"
    text = "func.func @main(%x: {0}) -> {0} {{\n%r = stablehlo.{1} %x : {0}\nreturn %r : {0}\n}}"
    written = as_written(CPU)
    more = seconds(text.format(kind, name), written) - seconds(text.format(kind, "tanh"), written)
    assert isclose(more, nanoseconds * 1e-3, rel_tol=0.2, abs_tol=1e-6)
    assert isclose(seconds(text.format(kind, name)), seconds(text.format(kind, "tanh")), rel_tol=0.01)
