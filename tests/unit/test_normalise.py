"""normalise: calls, leftovers and invariant carries go; everything a caller can see stays."""

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.locations import describe
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.passes import normalise
from tests.execute import calls_of

CALLS = """
module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32, mhlo.sharding = "{replicated}"},
                         %p: tensor<i1> {jax.buffer_donor = true}) -> (tensor<4xf32> {jax.result_info = "r"}) {
    %0 = call @outer(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = call @inner(%0) : (tensor<4xf32>) -> tensor<4xf32>
    %2 = "stablehlo.if"(%p) ({
      %3 = func.call @outer(%1) : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %3 : tensor<4xf32>
    }, {
      stablehlo.return %1 : tensor<4xf32>
    }) : (tensor<i1>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
  }
  func.func private @outer(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = call @inner(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.add %0, %a : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  func.func private @inner(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = chlo.square %a : tensor<4xf32> -> tensor<4xf32> loc("model.py":5:6)
    return %0 : tensor<4xf32>
  }
  func.func private @nobody(%a: tensor<4xf32>) -> tensor<4xf32> {
    return %a : tensor<4xf32>
  }
}
"""

LOOP = """
func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<i32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:4 = stablehlo.while(%i = %zero, %limit = %n, %k = %x, %y = %x)
      : tensor<i32>, tensor<i32>, tensor<4xf32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %z = stablehlo.multiply %y, %k : tensor<4xf32>
      stablehlo.return %j, %limit, %k, %z : tensor<i32>, tensor<i32>, tensor<4xf32>, tensor<4xf32>
    }
  return %0#3, %0#1, %0#2 : tensor<4xf32>, tensor<i32>, tensor<4xf32>
}
"""


def normalised(text: str) -> ir.Module:
    module = ir.Module.parse(text, new_context())
    assert normalise.run(module, Options()) == []
    module.operation.verify()
    return module


def test_calls_of_every_kind_are_inlined() -> None:
    text = str(normalised(CALLS))
    assert "call" not in text
    assert text.count("func.func") == 1
    assert text.count("chlo.square") == 3  # outer, then inner; outer again in the branch


def test_what_a_caller_sees_stays() -> None:
    text = str(normalised(CALLS))
    assert "module @jit_f attributes {mhlo.num_partitions = 1 : i32}" in text
    assert "func.func public @main(" in text
    assert 'mhlo.sharding = "{replicated}", tf.aliasing_output = 0 : i32' in text
    assert "jax.buffer_donor = true" in text
    assert 'jax.result_info = "r"' in text


def test_inlined_ops_keep_their_locations() -> None:
    text = serialise(normalised(CALLS), "text").decode()
    assert '"model.py":5:6' in text


def test_public_functions_stay_although_they_are_inlined() -> None:
    text = str(normalised(CALLS.replace("func.func private @inner", "func.func public @inner")))
    assert "func.func public @inner" in text
    assert "call" not in text


def test_what_another_op_names_is_not_dead() -> None:
    text = CALLS.replace(
        "return %2 :",
        '%9 = stablehlo.composite "my.op" %2 {decomposition = @nobody} : (tensor<4xf32>) -> tensor<4xf32>\n return %9 :',
    )
    assert "func.func private @nobody" in str(normalised(text))


def test_a_callee_that_returns_its_arguments_swapped() -> None:
    module = normalised("""
    func.func public @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
      %0:2 = call @swap(%a, %b) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
      %1:2 = call @swap(%0#0, %0#1) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
      %2 = stablehlo.subtract %1#0, %0#0 : tensor<f32>
      return %2 : tensor<f32>
    }
    func.func private @swap(%a: tensor<f32>, %b: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
      return %b, %a : tensor<f32>, tensor<f32>
    }""")
    assert "stablehlo.subtract %arg0, %arg1" in str(module)


def test_invariant_carries_are_captured() -> None:
    text = str(normalised(LOOP))
    assert text.count("stablehlo.while(%iterArg = %c_0, %iterArg_1 = %arg0)") == 1
    assert "stablehlo.compare LT, %iterArg, %arg1" in text
    assert "stablehlo.multiply %iterArg_1, %arg0" in text
    assert "return %0#1, %arg1, %arg0" in text


def test_an_inner_loop_frees_a_carry_of_the_outer_one() -> None:
    text = str(
        normalised("""
    func.func public @main(%x: tensor<4xf32>, %n: tensor<i1>) -> tensor<4xf32> {
      %0:2 = stablehlo.while(%k = %x, %y = %x) : tensor<4xf32>, tensor<4xf32>
        cond { stablehlo.return %n : tensor<i1> }
        do {
          %1:2 = stablehlo.while(%k2 = %k, %y2 = %y) : tensor<4xf32>, tensor<4xf32>
            cond { stablehlo.return %n : tensor<i1> }
            do {
              %z = stablehlo.multiply %y2, %k2 : tensor<4xf32>
              stablehlo.return %k2, %z : tensor<4xf32>, tensor<4xf32>
            }
          stablehlo.return %1#0, %1#1 : tensor<4xf32>, tensor<4xf32>
        }
      return %0#1 : tensor<4xf32>
    }""")
    )
    assert text.count("stablehlo.while(%iterArg = %arg0)") == 1
    assert text.count("stablehlo.while(%iterArg_0 = %iterArg)") == 1
    assert "stablehlo.multiply %iterArg_0, %arg0" in text


def test_carries_that_change_places_stay() -> None:
    text = str(normalised(LOOP.replace("%j, %limit, %k, %z", "%j, %limit, %z, %k")))
    assert "stablehlo.while(%iterArg = %c_0, %iterArg_1 = %arg0, %iterArg_2 = %arg0)" in text


def test_a_loop_that_changes_nothing_stays() -> None:
    text = str(normalised(LOOP.replace("%j, %limit, %k, %z", "%i, %limit, %k, %y")))
    assert "%iterArg_0 = %arg1, %iterArg_1 = %arg0, %iterArg_2 = %arg0)" in text


def test_a_loop_with_a_sharding_is_left_alone() -> None:
    text = LOOP.replace("    cond {", '    attributes {mhlo.sharding = "{replicated}"} cond {')
    assert "%iterArg_3 = %arg0)" in str(normalised(text))


@pytest.mark.parametrize("text", [CALLS, LOOP])
def test_twice_is_once(text: str) -> None:
    module = normalised(text)
    once = serialise(module, "text")
    normalise.run(module, Options())
    assert serialise(module, "text") == once
    assert serialise(normalised(once.decode()), "text") == once


@pytest.mark.parametrize(
    ("callee", "sentence"),
    [
        ("func.func private @f(%a: tensor<f32>) -> tensor<f32> { %0 = call @main(%a) : (tensor<f32>) -> tensor<f32>\n"
         "return %0 : tensor<f32> }", "@main calls itself"),
        ("func.func private @f(tensor<f32>) -> tensor<f32>", "has no body"),
        ("func.func private @f(%a: tensor<f32>) -> tensor<f32> { cf.br ^end\n ^end: return %a : tensor<f32> }", "several blocks"),
    ],
)  # fmt: skip
def test_calls_that_cannot_be_inlined(callee: str, sentence: str) -> None:
    main = "func.func public @main(%a: tensor<f32>) -> tensor<f32> {\n %0 = call @f(%a) : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32> }\n"
    with pytest.raises(InputError, match=sentence) as caught:
        normalised(main + callee)
    assert caught.value.line is not None


def chain(functions: int) -> str:
    """A chain of functions, each calling the next and adding a little."""
    text = ["func.func public @main(%a: tensor<f32>) -> tensor<f32> {"]
    for number in range(functions):
        text += [
            f"  %0 = call @f{number}(%a) : (tensor<f32>) -> tensor<f32>",
            "  %1 = stablehlo.sine %0 : tensor<f32>",
            "  return %1 : tensor<f32>",
            "}",
            f"func.func private @f{number}(%a: tensor<f32>) -> tensor<f32> {{",
        ]
    return "\n".join([*text, "  return %a : tensor<f32>", "}"])


def test_deep_chains_of_calls() -> None:
    """Deeper than Python's stack; each body is copied once, and not once for every caller above it."""
    assert str(normalised(chain(3000))).count("stablehlo.sine") == 3000
    assert calls_of(lambda: normalised(chain(1000))) <= 4.5 * calls_of(lambda: normalised(chain(250)))


def locations_of(text: str) -> list[str]:
    found: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name not in ("builtin.module", "func.func", "func.return", "stablehlo.constant"):
            found.append(describe(op))
        return ir.WalkResult.ADVANCE

    normalised(text).operation.walk(visit)
    return found


def test_what_is_inlined_is_located_at_the_line_that_calls_it() -> None:
    """A `jnp` function is exported as a call of one that knows no line of its own."""
    text = """
    func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = call @f(%a) : (tensor<4xf32>) -> tensor<4xf32> loc("jit(_var)"("model.py":5:8))
      %1 = call @f(%0) : (tensor<4xf32>) -> tensor<4xf32> loc("jit(_var)"("model.py":9:8))
      return %1 : tensor<4xf32>
    }
    func.func private @f(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = call @g(%a) : (tensor<4xf32>) -> tensor<4xf32> loc("jit(_where)")
      return %0 : tensor<4xf32>
    }
    func.func private @g(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.sine %a : tensor<4xf32> loc("sin")
      %1 = stablehlo.negate %0 : tensor<4xf32> loc("/x/site-packages/jax/numpy.py":3:4)
      %2 = stablehlo.cosine %1 : tensor<4xf32> loc("own.py":1:2)
      return %2 : tensor<4xf32>
    }"""
    assert locations_of(text) == ["model.py:5:8", "model.py:5:8", "own.py:1:2", *["model.py:9:8"] * 2, "own.py:1:2"]


def test_the_regions_of_what_is_inlined_are_located_too() -> None:
    text = """
    func.func public @main(%a: tensor<4xf32>, %p: tensor<i1>) -> tensor<4xf32> {
      %0 = call @f(%a, %p) : (tensor<4xf32>, tensor<i1>) -> tensor<4xf32> loc("model.py":5:8)
      return %0 : tensor<4xf32>
    }
    func.func private @f(%a: tensor<4xf32>, %p: tensor<i1>) -> tensor<4xf32> {
      %0 = "stablehlo.if"(%p) ({
        %1 = stablehlo.sine %a : tensor<4xf32> loc("sin")
        stablehlo.return %1 : tensor<4xf32> loc("sin")
      }, {
        stablehlo.return %a : tensor<4xf32> loc("cond")
      }) : (tensor<i1>) -> tensor<4xf32> loc("cond")
      return %0 : tensor<4xf32>
    }"""
    assert set(locations_of(text)) == {"model.py:5:8"}


def test_locations_of_calls_are_read_again_as_they_were_written() -> None:
    text = CALLS.replace("-> tensor<4xf32>\n    %1 = call", '-> tensor<4xf32> loc("model.py":7:8)\n    %1 = call')
    once = serialise(normalised(text), "text")
    assert b"callsite(#loc" in once and b'"model.py":7:8' in once
    assert serialise(normalised(once.decode()), "text") == once


def test_a_module_without_locations_gets_none() -> None:
    plain = CALLS.replace(' loc("model.py":5:6)', "")
    assert b"loc(" not in serialise(normalised(plain), "text")


def test_a_location_names_a_bounded_number_of_calls() -> None:
    texts: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        texts.append(str(op.location))
        return ir.WalkResult.ADVANCE

    normalised(chain(200)).operation.walk(visit)
    assert max(text.count("callsite") for text in texts) == 32
    # The line in the callee, and the outermost of its callers.
    assert sum(text.startswith('loc(callsite("-":') and '"-":2:' in text for text in texts) == 199
