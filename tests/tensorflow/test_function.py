"""`exla_opt.tensorflow.function` does what `tf.function(fn, jit_compile=True)` does, in slices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make test-tensorflow")

from exla_opt import InputError  # noqa: E402
from exla_opt.explanations import EXPLANATIONS  # noqa: E402
from exla_opt.tensorflow import function  # noqa: E402
from exla_opt.tensorflow.twin import Program  # noqa: E402

sliced: Any = partial(function, size_threshold="64KB", split_size="32KB")
ROWS, COLUMNS = 300, 8


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


class Model:
    """Attention with a weight, a tensor that is closed over, and a counter."""

    def __init__(self) -> None:
        self.weight = tf.Variable(numbers(0, COLUMNS, COLUMNS))
        self.values = tf.constant(numbers(1, ROWS, COLUMNS))
        self.count = tf.Variable(0.0, trainable=False)

    def layer(self, x: Any) -> Any:
        return tf.nn.softmax((x @ self.weight) @ tf.transpose(x)) @ self.values

    def loss(self, x: Any) -> Any:
        return tf.reduce_mean(self.layer(x) ** 2)

    def assign(self, x: Any) -> Any:
        self.count.assign_add(2.0)
        return self.loss(x) * self.count

    def derivatives(self, call: Callable[[Any], Any], x: Any) -> Any:
        """Of the sum of what is called by its argument, the weight and what is closed over."""
        with tf.GradientTape() as tape:
            tape.watch([x, self.values])
            value = tf.reduce_sum(call(x))
        return [value, *tape.gradient(value, [x, self.weight, self.values])]


OUTER: dict[str, Callable[[Any], Any]] = {
    "eager": lambda call: call,
    "function": tf.function,
    "jit": partial(tf.function, jit_compile=True),
}


def close(one: Any, other: Any) -> None:
    tf.nest.map_structure(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), one, other)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that are made while a test runs."""
    made: list[Any] = []

    def initialised(self: Program, *given: Any) -> None:
        plain(self, *given)
        made.append(self)

    plain = Program.__init__
    monkeypatch.setattr(Program, "__init__", initialised)
    return made


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("tape", ["none", "inside", "outside"])
@pytest.mark.parametrize("kind", ["loss", "layer", "assign"])
def test_it_computes_the_same(outer: str, tape: str, kind: str, programs: list[Any]) -> None:
    plain, twin, x = Model(), Model(), tf.constant(numbers(2, ROWS, COLUMNS))
    call = sliced(getattr(twin, kind))
    if tape == "none":
        expected: Any = getattr(plain, kind)
        found = OUTER[outer](call)
    elif tape == "inside":  # of the outer function
        expected = partial(plain.derivatives, getattr(plain, kind))
        found = OUTER[outer](partial(twin.derivatives, call))
    else:
        expected = partial(plain.derivatives, getattr(plain, kind))
        found = partial(twin.derivatives, OUTER[outer](call))
    for _ in range(2):  # the second time from the cache
        close(found(x), expected(x))
    assert twin.count.numpy() == plain.count.numpy() == (4.0 if kind == "assign" else 0.0)
    assert programs and all(b"StableHLO_v1" in program.module.artifact for program in programs)
    assert len(programs) == (2 if kind == "layer" and tape != "none" else 1)


def test_a_step_with_its_own_tape(programs: list[Any]) -> None:
    def step(model: Model, x: Any) -> Any:
        value, by_x, by_weight, _ = model.derivatives(model.assign, x)
        model.weight.assign_sub(0.5 * by_weight)
        return {"loss": value, "nothing": None, "pair": (by_x, tf.IndexedSlices(by_x[:3], tf.range(3)))}

    plain, twin, x = Model(), Model(), tf.constant(numbers(2, ROWS, COLUMNS))
    call = sliced(partial(step, twin))
    for _ in range(3):
        found, expected = call(x), step(plain, x)
        assert found["nothing"] is None
        close(found["loss"], expected["loss"])
        close(found["pair"][1].values, expected["pair"][1].values)
    close(twin.weight, plain.weight)
    assert len(programs) == 1


def test_big_tensors_are_gone() -> None:
    model = Model()
    remarks = sliced(model.loss).explain(tf.TensorSpec([ROWS, COLUMNS], tf.float32))
    assert remarks and all(remark.code in EXPLANATIONS for remark in remarks)
    assert any("300x300" in remark.tensor and remark.kind.value == "passed" for remark in remarks)


def test_the_gradient_is_at_the_values_that_were_read() -> None:
    plain, twin, x = Model(), Model(), tf.constant(numbers(2, ROWS, COLUMNS))
    found = []
    for model, call in ((plain, plain.layer), (twin, sliced(twin.layer))):
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(call(x) ** 2)
        model.weight.assign(model.weight * 3.0)
        found.append(tape.gradient(value, model.weight))
    close(*found)


def test_arguments_of_every_kind_have_programs_of_their_own(programs: list[Any]) -> None:
    def scaled(x: Any, *, scale: float = 1.0, more: dict[str, Any], flag: bool = False) -> Any:
        if tf.reduce_sum(x) > 0.0:  # autograph
            x = x + more["y"]
        return x * scale if flag else -x

    call = sliced(scaled)
    x, y = numbers(0, 4, 3), tf.constant(numbers(1, 4, 3))
    added = x + y if x.sum() > 0 else x
    close(call(x, more={"y": y}), -added)
    close(tf.function(lambda x: call(x, more={"y": y}, flag=True))(x), added)
    close(call(x, scale=2.0, more={"y": y}, flag=True), 2 * added)
    assert len(programs) == 3
    call(x + 1, more={"y": y})
    assert len(programs) == 3
    call(x[:2], more={"y": y[:2]})
    assert len(programs) == 4


def test_frozen_and_integer_results_have_no_derivative() -> None:
    weight = tf.Variable(numbers(0, 3, 3), trainable=False)
    call = sliced(lambda x: (tf.argmax(x @ weight, 1), x @ weight))
    x = tf.constant(numbers(1, 5, 3))
    with tf.GradientTape() as tape:
        tape.watch(x)
        _, product = call(x)
    by_x, by_weight = tape.gradient(product, [x, weight])
    assert by_weight is None
    close(by_x, tf.ones([5, 3]) @ tf.transpose(weight))


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("kind", ["loss", "layer"])
def test_second_derivatives_are_refused(outer: str, kind: str) -> None:
    model, x = Model(), tf.constant(numbers(2, ROWS, COLUMNS))
    call = sliced(getattr(model, kind))

    def second(x: Any) -> Any:
        with tf.GradientTape() as above:
            above.watch(x)
            first = model.derivatives(call, x)[1]
        return above.gradient(first, x)

    with pytest.raises(NotImplementedError, match="put it around the function that takes the second derivative"):
        OUTER[outer](second)(x)


def test_forward_mode_is_refused() -> None:
    x = tf.ones(3)
    with pytest.raises(NotImplementedError, match="by reverse mode only"), tf.autodiff.ForwardAccumulator(x, x):
        sliced(lambda x: x * x)(x)


def test_tensors_of_the_function_around_are_arguments() -> None:
    def outer(x: Any) -> Any:
        y = 2 * x
        return sliced(lambda z: z + y)(x)

    with pytest.raises(ValueError, match="make that tensor one of its arguments"):
        tf.function(outer)(tf.ones(3))


def test_results_of_no_known_size_are_refused_by_the_function_s_name() -> None:
    def positive(x: Any) -> Any:
        return tf.reduce_sum(tf.boolean_mask(x, x > 0))

    with pytest.raises(InputError, match=r"^<.*positive>: error: dynamic shape .*\n?.*help: tf.boolean_mask"):
        sliced(positive)(tf.ones(3))


def test_ragged_and_sparse_tensors_are_refused_in_a_sentence() -> None:
    ragged, sparse = tf.ragged.constant([[1.0, 2.0], [3.0]]), tf.sparse.from_dense([[1.0, 0.0]])
    with pytest.raises(TypeError, match=r"dense tensors, and there is a RaggedTensor: take its .to_tensor"):
        sliced(lambda rows: tf.reduce_sum(rows.values))(ragged)
    with pytest.raises(TypeError, match=r"dense tensors, and there is a SparseTensor: take tf.sparse.to_dense"):
        sliced(lambda rows: tf.sparse.reduce_sum(rows))(sparse)
    with pytest.raises(TypeError, match=r"dense tensors, and there is a RaggedTensor"):
        sliced(lambda x: tf.RaggedTensor.from_row_lengths(x, [1, 2]))(tf.ones(3))


def test_second_derivatives_inside_are_computed() -> None:
    def second(x: Any) -> Any:
        with tf.GradientTape() as above:
            above.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = tf.reduce_sum(tf.sin(x))
            first = tape.gradient(value, x)
        return above.gradient(first, x)

    x = tf.constant(numbers(0, 5))
    close(sliced(second)(x), -tf.sin(x))


def test_what_draws_or_assigns_is_not_run_twice() -> None:
    model, x = Model(), tf.constant(numbers(2, 5, COLUMNS))

    def drawn(x: Any) -> Any:
        return x * tf.random.normal([5, COLUMNS])

    def counted(x: Any) -> Any:
        model.count.assign_add(1.0)
        return x * model.count

    for call in (drawn, counted):
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = sliced(call)(x)
        with pytest.raises(NotImplementedError, match="would repeat what it draws or assigns"):
            tape.gradient(result, x)
    assert model.count.numpy() == 1.0


def test_a_loss_that_draws_has_the_derivative_of_what_it_drew() -> None:
    weight = tf.Variable(2.0)
    loss = sliced(lambda: tf.reduce_sum(weight * tf.random.normal([1000])))
    with tf.GradientTape() as tape:
        value = loss()
    np.testing.assert_allclose(tape.gradient(value, weight), value / 2, rtol=1e-4)


def test_sizes_that_are_not_known() -> None:
    def through(x: Any) -> Any:
        return call(x)

    outer = tf.function(through, input_signature=[tf.TensorSpec([None, 3])])
    call = sliced(lambda x: 2 * x)
    with pytest.raises(
        ValueError, match=r"needs static shapes, .*lambda.* was called with \(None, 3\): give the batch"
    ):
        outer(tf.ones([2, 3]))
    call = sliced(lambda x: 2 * x, on_dynamic="warn")
    with pytest.warns(UserWarning, match="it is called as it is"):
        close(outer(tf.ones([2, 3])), 2 * tf.ones([2, 3]))


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"on_dynamic": "maybe"}, "on_dynamic is"),
        ({"memory_limit": "1GB", "split_size": "1MB"}, "memory_limit chooses"),
        ({"memory_limit": "1G"}, "did you mean 1GB"),
    ],
)
def test_wishes_that_make_no_sense(wishes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        function(lambda x: x, **wishes)
