"""Random draws, Monte Carlo, bootstrap, Markov chains."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .programs import KEY, Array, Field, f32

FIELD = Field()


@FIELD.add(KEY, f32(200))
def normal_matrix_product(key: Array, mean: Array) -> Array:
    """A covariance estimated from a million draws."""
    x = mean + jax.random.normal(key, (400_000, 200))
    return (x - x.mean(0)).T @ (x - x.mean(0)) / 399_999


@FIELD.add(KEY)
def estimate_of_pi(key: Array) -> Array:
    """The share of points in a circle."""
    x = jax.random.uniform(key, (20_000_000, 2), minval=-1)
    return 4 * ((x**2).sum(1) < 1).mean()


@FIELD.add(KEY, f32(20000, 1000))
def categorical_draws(key: Array, logits: Array) -> Array:
    """How often each category was drawn."""
    drawn = jax.random.categorical(key, logits, axis=-1)
    return jnp.bincount(drawn, length=1000)


@FIELD.add(KEY, f32(20000))
def bootstrap_of_means(key: Array, x: Array) -> Array:
    """The spread of means over a thousand resamples, all at once."""
    chosen = jax.random.randint(key, (1000, 20000), 0, 20000)
    return jnp.percentile(x[chosen].mean(1), jnp.array([2.5, 97.5]))


@FIELD.add(KEY, f32(5000, 20), f32(5000))
def bootstrap_of_regressions(key: Array, x: Array, y: Array) -> Array:
    """200 resampled least squares by vmap."""

    def fit(key: Array) -> Array:
        chosen = jax.random.choice(key, 5000, (5000,))
        a, b = x[chosen], y[chosen]
        return jnp.linalg.solve(a.T @ a + 1e-3 * jnp.eye(20), a.T @ b)

    return jax.vmap(fit)(jax.random.split(key, 200)).std(0)


@FIELD.add(KEY, f32(500_000, 12))
def permutation_test(key: Array, x: Array) -> Array:
    """The mean difference after a shuffle of the rows."""
    mixed = jax.random.permutation(key, x)
    return mixed[:250_000].mean(0) - mixed[250_000:].mean(0)


@FIELD.add(KEY, f32(1000, 50), f32(20000, 50), f32(20000))
def hamiltonian_chains(key: Array, start: Array, x: Array, y: Array) -> Array:
    """A thousand chains of Hamiltonian Monte Carlo on logistic regression."""

    def energy(w: Array) -> Array:
        return jnp.logaddexp(0, -y * (x @ w)).sum() + 0.5 * w @ w

    slope = jax.vmap(jax.grad(energy))

    def leap(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        w, p = state
        p = p - 0.0005 * slope(w)
        w = w + 0.001 * p
        return (w, p - 0.0005 * slope(w)), None

    def body(w: Array, key: Array) -> tuple[Array, Array]:
        p = jax.random.normal(key, w.shape)
        new, q = lax.scan(leap, (w, p), None, length=8)[0]
        before = jax.vmap(energy)(w) + 0.5 * (p**2).sum(1)
        after = jax.vmap(energy)(new) + 0.5 * (q**2).sum(1)
        accept = jnp.log(jax.random.uniform(key, (1000,))) < before - after
        w = jnp.where(accept[:, None], new, w)
        return w, w

    return lax.scan(body, start, jax.random.split(key, 20))[1]


@FIELD.add(KEY, f32(100_000, 10))
def metropolis_kept(key: Array, start: Array) -> tuple[Array, Array]:
    """100 steps of many walkers, all places kept, then their mean and spread."""

    def body(x: Array, key: Array) -> tuple[Array, Array]:
        one, two = jax.random.split(key)
        new = x + 0.5 * jax.random.normal(one, x.shape)
        gain = 0.5 * ((x**2).sum(1) - (new**2).sum(1))
        x = jnp.where((jnp.log(jax.random.uniform(two, (100_000,))) < gain)[:, None], new, x)
        return x, x

    kept = lax.scan(body, start, jax.random.split(key, 100))[1]
    return kept.mean((0, 1)), kept.std((0, 1))


@FIELD.add(KEY, f32(512, 512))
def ising_checkerboard(key: Array, spins: Array) -> Array:
    """Sweeps over a lattice by its two colours, 32 replicas."""
    colour = (jnp.arange(512)[:, None] + jnp.arange(512)) % 2

    def body(spins: Array, key: Array) -> tuple[Array, Array]:
        for each in (0, 1):
            around = sum(jnp.roll(spins, step, axis) for axis in (1, 2) for step in (1, -1))
            flip = jax.random.uniform(key, spins.shape) < jnp.exp(-0.88 * spins * around)
            spins = jnp.where(flip & (colour == each), -spins, spins)
        return spins, spins.mean((1, 2))

    many = jnp.sign(jnp.broadcast_to(spins, (32, 512, 512)))
    return lax.scan(body, many, jax.random.split(key, 100))[1]


@FIELD.add(KEY, f32(200_000), f32(100))
def particle_filter(key: Array, start: Array, observed: Array) -> Array:
    """Resampling by cumulative weights at every observation."""

    def body(x: Array, each: tuple[Array, Array]) -> tuple[Array, Array]:
        key, y = each
        x = 0.9 * x + jax.random.normal(key, x.shape)
        weights = jax.nn.softmax(-0.5 * (y - x) ** 2)
        place = (jnp.arange(200_000) + jax.random.uniform(key)) / 200_000
        index = jnp.searchsorted(jnp.cumsum(weights), place)
        return x[jnp.minimum(index, 199_999)], (weights * x).sum()

    return lax.scan(body, start, (jax.random.split(key, 100), observed))[1]


@FIELD.add(KEY, f32(64), f32(64, 64))
def evidence_by_importance(key: Array, mean: Array, root: Array) -> Array:
    """The log-evidence from weighted draws of a Gaussian."""
    noise = jax.random.normal(key, (300_000, 64))
    x = mean + noise @ root.T
    target = -jnp.log1p(x**2).sum(1)
    proposal = -0.5 * (noise**2).sum(1) - jnp.log(jnp.abs(jnp.diagonal(root))).sum()
    return jax.nn.logsumexp(target - proposal) - jnp.log(300_000.0)


@FIELD.add(KEY, f32(2000, 500))
def gumbel_softmax_straight_through(key: Array, logits: Array) -> Array:
    """The gradient through eight relaxed samples."""

    def loss(logits: Array) -> Array:
        noise = jax.random.gumbel(key, (8, 2000, 500))
        soft = jax.nn.softmax((logits + noise) / 0.5, axis=-1)
        hard = jax.nn.one_hot(soft.argmax(-1), 500)
        return ((hard + soft - lax.stop_gradient(soft)) * jnp.arange(500.0)).sum(-1).var(0).mean()

    return jax.grad(loss)(logits)


@FIELD.add(KEY, f32(1_000_000))
def gamma_and_beta_draws(key: Array, shapes: Array) -> tuple[Array, Array]:
    """Draws by rejection, in a loop that runs until all are accepted."""
    one, two = jax.random.split(key)
    a = jax.random.gamma(one, jnp.abs(shapes) + 0.5)
    b = jax.random.gamma(two, jnp.abs(shapes) + 1.5)
    return a / (a + b), jnp.log(a).mean()
