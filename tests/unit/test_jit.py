"""`exla_opt.jit` does what `jax.jit` does, in slices."""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exla_opt
from exla_opt.runtime.jit import backend_target

sliced: Any = partial(exla_opt.jit, size_threshold="64KB", split_size="32KB")


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T / 3, axis=-1) @ v


def loss(call: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return lambda *given: jnp.sum(call(*given) ** 2)


def arguments(rows: int = 301) -> list[jax.Array]:
    return [jax.random.normal(jax.random.key(seed), (rows, 8)) for seed in range(3)]


def close(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), one, other)


def temp(jitted: Any, *given: Any) -> int:
    return int(jitted.lower(*given).compile().memory_analysis().temp_size_in_bytes)


def test_it_computes_the_same_in_less_memory() -> None:
    split = sliced(attention)
    for rows in (301, 200):
        close(split(*arguments(rows)), attention(*arguments(rows)))
    assert temp(split, *arguments()) < temp(jax.jit(attention), *arguments()) / 4


@pytest.mark.parametrize("form", ["bare", "called", "limit"])
def test_it_is_a_decorator(form: str) -> None:
    decorator: Any = {"bare": exla_opt.jit, "called": sliced(), "limit": exla_opt.jit(memory_limit="2GB")}[form]

    @decorator  # type: ignore[untyped-decorator]
    def double(x: jax.Array) -> jax.Array:
        """Twice."""
        return 2 * x

    assert double(3.0) == 6 and double.__doc__ == "Twice."


def test_types_are_those_of_jax_jit() -> None:
    def multiply(x: Any, y: Any) -> Any:
        return x * y

    half, one = jnp.ones(3, jnp.float16), np.float32(2)
    calls = [(half, 2.0), (half, one), (half, 2.0), (3, 2), (3.0, 2), (half, half), (True, half)]
    ours, jaxs = sliced(multiply), jax.jit(multiply)
    for given in calls:
        assert jax.typeof(ours(*given)) == jax.typeof(jaxs(*given)), given
    with jax.enable_x64(True):
        assert ours(3.0, 2.0).dtype == jnp.float64
    assert ours(3.0, 2.0).dtype == jnp.float32


def test_static_arguments_and_donation_go_to_jax() -> None:
    def scale(x: jax.Array, by: int, *, mode: str) -> jax.Array:
        return x * by if mode == "times" else x + by

    split = sliced(scale, static_argnames=("by", "mode"), donate_argnames="x")
    x = jnp.ones(3)
    assert split(x, 2, mode="times")[0] == 2 and x.is_deleted()
    assert split(jnp.ones(3), 2, mode="plus")[0] == 3
    assert split.lower(jnp.ones(3), 2, mode="plus").compile().memory_analysis().alias_size_in_bytes == 12


@pytest.mark.parametrize(
    "donation", [{"donate_argnums": 0}, {"donate_argnums": (-2,)}, {"donate_argnames": "state"}, {}], ids=str
)
@pytest.mark.parametrize("is_named", [False, True])
def test_what_is_donated_counts_once_for_the_limit(donation: dict[str, Any], is_named: bool) -> None:
    def step(state: dict[str, jax.Array], batch: jax.Array) -> Any:
        weights = jnp.exp(jnp.tanh(batch @ batch.T))
        total = (weights @ batch).sum()
        return jax.tree.map(lambda one: one + total, state), total

    state = {name: jax.ShapeDtypeStruct((2_000_000,), jnp.float32) for name in ("mean", "weights")}
    batch = jax.ShapeDtypeStruct((2_000, 8), jnp.float32)
    split: Any = exla_opt.jit(step, memory_limit="20MB", **donation)
    plain = jax.jit(step, **donation).lower(state, batch).compile().memory_analysis()
    counts = plain is not None and plain.alias_size_in_bytes > 0  # not for -2 with jax 0.10
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lowered = split.lower(state=state, batch=batch) if is_named else split.lower(state, batch)
    assert bool(said) == (not counts)
    planned = lowered.compile().memory_analysis()
    assert (planned.alias_size_in_bytes > 0) == counts


def test_a_step_that_is_called_with_its_own_results_is_compiled_once() -> None:
    """Results are committed to their device only if those of `jax.jit` would be."""
    step = sliced(lambda state, batch: state + jnp.tanh(batch @ batch.T).sum(), donate_argnums=0)
    state = jnp.zeros(3)
    for _ in range(3):
        state = step(state, jnp.ones((300, 3)))
    assert not state.committed and step._cache_size() == 1
    on_device = jax.device_put(jnp.zeros(3), jax.devices()[0])
    assert step(on_device, jnp.ones((300, 3))).committed


@pytest.mark.parametrize("by", [0, (0, 2), (0, 1, 2)])
def test_gradients_are_sliced_too(by: int | tuple[int, ...]) -> None:
    given = arguments()
    inside, outside = jax.grad(loss(sliced(attention)), by), jax.grad(loss(attention), by)
    close(inside(*given), outside(*given))
    assert temp(jax.jit(inside), *given) < temp(jax.jit(outside), *given) / 4


def test_a_gradient_is_computed_by_what_it_is_asked_for_only() -> None:
    def fit(weights: jax.Array, data: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(data @ weights) ** 2)

    given = jax.ShapeDtypeStruct((8,), jnp.float32), jax.ShapeDtypeStruct((50_000, 8), jnp.float32)
    text = jax.jit(jax.grad(sliced(fit))).lower(*given).as_text()
    assert "-> tensor<8xf32>" in text.replace("(tensor<8xf32>", "") and "-> tensor<50000x8xf32>" not in text


def test_second_derivatives() -> None:
    q, *rest = arguments(60)

    def squared(call: Callable[..., jax.Array]) -> Callable[[jax.Array], jax.Array]:
        return jax.grad(lambda q: jnp.sum(jax.grad(loss(call))(q, *rest) ** 2))

    close(squared(exla_opt.jit(attention, size_threshold=10_000))(q), squared(attention)(q))


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, None), (None, 0, 0)])
def test_batches(axes: tuple[int | None, ...]) -> None:
    given = [jnp.stack([x, x / 2]) if axis == 0 else x for x, axis in zip(arguments(), axes, strict=True)]
    split = sliced(attention)
    close(jax.vmap(split, axes)(*given), jax.vmap(attention, axes)(*given))
    close(jax.vmap(jax.grad(loss(split)), axes)(*given), jax.vmap(jax.grad(loss(attention)), axes)(*given))
    mapped = [
        jax.grad(lambda *given, call=call: jnp.sum(jax.vmap(call, axes)(*given) ** 2)) for call in (split, attention)
    ]
    close(mapped[0](*given), mapped[1](*given))


def test_it_stands_inside_of_other_functions() -> None:
    def outer(w: jax.Array, x: jax.Array, call: Any) -> Any:
        return call(lambda x: jnp.sum(jnp.tanh(x * w) @ x.T))(x) * 2

    given = jnp.ones(8), arguments()[0]
    ours = jax.jit(jax.value_and_grad(partial(outer, call=sliced)))
    close(ours(*given), jax.value_and_grad(partial(outer, call=jax.jit))(*given))

    def body(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
        return sliced(attention)(carry, carry, carry), None

    x = arguments()[0]
    found, _ = jax.lax.scan(body, x, length=3)
    close(found, attention(*[attention(*[attention(x, x, x)] * 3)] * 3))


def test_constants_are_arguments_of_the_module() -> None:
    table = jnp.ones((2000, 300))
    lowered = sliced(lambda x: x @ table).lower(jnp.ones((5, 2000)))
    assert len(lowered.as_text()) < 100_000


def test_keys_and_integers_have_no_gradient() -> None:
    def dropped(key: jax.Array, x: jax.Array, times: int) -> tuple[jax.Array, Any]:
        return jnp.sum(jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)) * times, times

    given = jax.random.key(0), arguments()[0], 3
    split = sliced(dropped)
    close(split(*given), dropped(*given))
    close(jax.grad(split, 1, has_aux=True)(*given)[0], jax.grad(dropped, 1, has_aux=True)(*given)[0])


def test_what_calls_python_is_refused_in_a_sentence() -> None:
    def prints(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x)
        return x

    def asks(x: jax.Array) -> Any:
        return jax.pure_callback(np.asarray, x, x)

    for function in (prints, asks):
        with pytest.raises(NotImplementedError, match="calls Python while it runs"):
            sliced(function)(jnp.ones(3))


def test_an_axis_of_an_enclosing_function_is_refused_in_a_sentence() -> None:
    def without_mean(x: jax.Array) -> jax.Array:
        centred: jax.Array = x - jax.lax.pmean(x, "batch")
        return centred

    given = jnp.ones((3, 4))
    with pytest.raises(NotImplementedError, match=r"axis of an enclosing .* \(batch\): put exla_opt.jit around"):
        jax.vmap(sliced(without_mean), axis_name="batch")(given)
    close(sliced(jax.vmap(without_mean, axis_name="batch"))(given), jnp.zeros((3, 4)))


def test_the_gradient_by_a_python_number_is_weakly_typed() -> None:
    def scaled(scale: Any) -> jax.Array:
        return jnp.sum(scale * jnp.ones(3))

    for by in (2.0, jnp.float32(2)):
        assert jax.typeof(jax.grad(sliced(scaled))(by)) == jax.typeof(jax.grad(jax.jit(scaled))(by))


def test_a_function_keeps_its_name() -> None:
    def distances(x: jax.Array) -> jax.Array:
        return x[:, None] - x[None]

    with pytest.warns(exla_opt.StaysInMemory, match=r"func.return at jit\(distances\)"):
        sliced(distances)(jnp.ones(300))


def test_disable_jit_runs_the_function_itself() -> None:
    seen: list[Any] = []

    def look(x: jax.Array) -> jax.Array:
        seen.append(x)
        return x

    with jax.disable_jit():
        sliced(look)(jnp.ones(3))
    assert isinstance(seen[0], jax.Array) and not isinstance(seen[0], jax.core.Tracer)


def test_a_library_whose_calls_jax_does_not_promise_to_keep() -> None:
    given = jnp.eye(3) + 0.5
    close(sliced(jnp.linalg.slogdet)(given), jnp.linalg.slogdet(given))
    close(sliced(jax.scipy.linalg.expm)(given), jax.scipy.linalg.expm(given))


def test_what_stays_in_memory_is_a_warning_with_its_line() -> None:
    def sorts(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.arange(100_000) * jnp.sort(jnp.sin(x)))

    with pytest.warns(exla_opt.StaysInMemory, match=r"test_jit\.py:\d+.*: 100000xf32 \(400KB\)") as warned:
        sliced(sorts)(jnp.ones(100_000))
    line = "return jnp.sum(jnp.arange(100_000) * jnp.sort(jnp.sin(x)))"
    assert {linecache.getline(one.filename, one.lineno).strip() for one in warned} == {line}
    with pytest.warns(exla_opt.StaysInMemory, match="does not fit into 410KB: needs"):
        exla_opt.jit(sorts, memory_limit="410KB")(jnp.ones(100_000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sliced(attention)(*arguments())


def test_what_is_split_after_another_rewrite_was_refused_is_no_warning() -> None:
    def cubes(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.exp(-jnp.sum(jnp.abs(x[:, None] - x[None]) ** 3, axis=-1)))

    given = jax.random.normal(jax.random.key(0), (128, 64))
    split = sliced(jax.grad(cubes))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(split(given), jax.grad(cubes)(given))
        codes = {remark.code for remark in split.explain(given)}
    assert {"EX001", "EX403"} <= codes


def test_explain_prints_the_summary_and_returns_the_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    specs = [jax.ShapeDtypeStruct((301, 8), jnp.float32)] * 3
    remarks = sliced(attention).explain(*specs)
    assert any(remark.tensor == "301x301xf32" for remark in remarks)
    printed = capsys.readouterr().out
    assert "Peak memory" in printed
    assert re.search(r"Peak .*, predicted, .* of it .*\.\n$", printed, re.DOTALL)


@pytest.mark.parametrize(
    ("backend", "kind", "target"),
    [
        ("cpu", "cpu", "cpu"),
        ("gpu", "NVIDIA H200", "cuda"),
        ("tpu", "TPU v5 lite", "tpu:v5e"),
        ("tpu", "TPU v5", "tpu:v5p"),
        ("tpu", "TPU of tomorrow", "tpu"),
    ],
)
def test_the_target_of_jax_s_own_backend(backend: str, kind: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(device_kind=kind)])
    assert backend_target() == target
