"""Simulation: stencils, particles, spectra, sparse and dense solvers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .programs import Array, Field, f32, i32, shape

FIELD = Field()


@FIELD.add(f32(4096, 4096))
def heat_steps(u: Array) -> Array:
    """100 steps of the heat equation with rolled neighbours."""

    def body(_: int, u: Array) -> Array:
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return u + 0.1 * (around - 4 * u)

    return lax.fori_loop(0, 100, body, u)


@FIELD.add(f32(2048, 2048), f32(2048, 2048), f32(2048, 2048))
def wave_equation(u: Array, before: Array, speed: Array) -> tuple[Array, Array]:
    """50 leapfrog steps with slices of a padded field, and the energy of each."""

    def body(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        u, before = state
        p = jnp.pad(u, 1)
        bend = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u
        new = 2 * u - before + speed * bend
        return (new, u), ((new - u) ** 2).sum()

    (u, _), energy = lax.scan(body, (u, before), None, length=50)
    return u, energy


@FIELD.add(f32(256, 256, 64), f32(256, 256, 64))
def inverse_wave_gradient(u: Array, speed: Array) -> Array:
    """The gradient of a wave field in the speeds, through 20 steps."""

    def loss(speed: Array) -> Array:
        def body(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            u, before = state
            bend = sum(jnp.roll(u, step, axis) for axis in range(3) for step in (1, -1)) - 6 * u
            return (2 * u - before + speed**2 * bend, u), None

        return (lax.scan(body, (u, u), None, length=20)[0][0] ** 2).sum()

    return jax.grad(loss)(speed)


@FIELD.add(f32(192, 192, 192))
def laplacian_by_convolution(u: Array) -> Array:
    """A stencil of 27 points as a convolution of three dimensions."""
    stencil = jnp.ones((3, 3, 3)).at[1, 1, 1].set(-26.0)
    y = lax.conv_general_dilated(u[None, None], stencil[None, None], (1, 1, 1), "SAME")
    return jnp.tanh(y[0, 0]) * u


@FIELD.add(f32(6000, 3), f32(6000, 3), f32(6000))
def gravity_steps(place: Array, speed: Array, mass: Array) -> tuple[Array, Array]:
    """Ten steps of all bodies attracting all."""

    def force(place: Array) -> Array:
        apart = place[None] - place[:, None]
        square = (apart**2).sum(-1) + 0.01
        return ((mass / square**1.5)[..., None] * apart).sum(1)

    def body(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        place, speed = state
        speed = speed + 0.01 * force(place)
        return place + 0.01 * speed, speed

    return lax.fori_loop(0, 10, body, (place, speed))


@FIELD.add(f32(4000, 3))
def lennard_jones_forces(place: Array) -> tuple[Array, Array]:
    """The energy in a periodic box and the forces by its gradient."""

    def energy(place: Array) -> Array:
        apart = place[:, None] - place[None]
        apart = apart - 10 * jnp.round(apart / 10)
        square = (apart**2).sum(-1) + jnp.eye(4000)
        sixth = (1 / square) ** 3
        inside = (square < 9) & ~jnp.eye(4000, dtype=bool)
        return 2 * jnp.where(inside, sixth**2 - sixth, 0.0).sum()

    return jax.value_and_grad(energy)(place)


@FIELD.add(f32(200000, 3), i32(200000, 40))
def neighbour_list_forces(place: Array, neighbours: Array) -> Array:
    """Forces from 40 listed neighbours each, by the gradient of the energy."""

    def energy(place: Array) -> Array:
        apart = place[:, None] - place[neighbours]
        distance = jnp.sqrt((apart**2).sum(-1) + 1e-6)
        return jnp.exp(-distance).sum()

    return -jax.grad(energy)(place)


@FIELD.add(shape(jnp.int8, 8192, 8192))
def game_of_life(cells: Array) -> Array:
    """50 generations on a torus of bytes."""

    def body(_: int, x: Array) -> Array:
        around = sum(
            jnp.roll(x, (down, right), (0, 1)) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0)
        )
        return ((around == 3) | ((x == 1) & (around == 2))).astype(jnp.int8)

    return lax.fori_loop(0, 50, body, cells)


@FIELD.add(f32(64, 256, 256, 16), f32(3, 3, 16, 48), f32(48, 16))
def neural_cellular_automaton(x: Array, look: Array, act: Array) -> Array:
    """20 steps in which cells look around and change."""

    def body(x: Array, _: None) -> tuple[Array, None]:
        seen = lax.conv_general_dilated(x, look, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return x + jax.nn.relu(seen) @ act, None

    return lax.scan(body, x, None, length=20)[0][..., 0]


@FIELD.add(shape(jnp.complex64, 1024, 1024))
def split_step_schroedinger(wave: Array) -> Array:
    """100 split steps of a wave function, potential and kinetic by turns."""
    grid = jnp.arange(1024) / 1024 - 0.5
    potential = grid[:, None] ** 2 + grid**2
    speed = jnp.fft.fftfreq(1024)
    kinetic = jnp.exp(-0.01j * (speed[:, None] ** 2 + speed**2))

    def body(_: int, wave: Array) -> Array:
        wave = wave * jnp.exp(-0.01j * potential)
        return jnp.fft.ifft2(jnp.fft.fft2(wave) * kinetic)

    return jnp.abs(lax.fori_loop(0, 100, body, wave)) ** 2


@FIELD.add(f32(512, 512, 64))
def poisson_by_fft(charge: Array) -> Array:
    """The field of a periodic charge, three components."""
    waves = [jnp.fft.fftfreq(n) * n for n in charge.shape[:2]] + [jnp.fft.rfftfreq(64) * 64]
    grids = jnp.meshgrid(*waves, indexing="ij")
    square = sum(grid**2 for grid in grids).at[0, 0, 0].set(1.0)
    potential = jnp.fft.rfftn(charge) / square
    return jnp.stack([jnp.fft.irfftn(-1j * grid * potential, charge.shape) for grid in grids])


@FIELD.add(f32(1024, 1024), f32(1024, 1024))
def vorticity_step(vorticity: Array, force: Array) -> Array:
    """A step of a two-dimensional fluid in Fourier space."""
    k = jnp.fft.fftfreq(1024)[:, None] * 1024
    l = jnp.fft.rfftfreq(1024) * 1024  # noqa: E741
    square = (k**2 + l**2).at[0, 0].set(1.0)
    w = jnp.fft.rfft2(vorticity)
    stream = w / square
    u, v = jnp.fft.irfft2(1j * l * stream), jnp.fft.irfft2(-1j * k * stream)
    advected = u * jnp.fft.irfft2(1j * k * w) + v * jnp.fft.irfft2(1j * l * w)
    w = (w + 0.001 * jnp.fft.rfft2(force - advected)) / (1 + 1e-6 * square)
    return jnp.fft.irfft2(w)


@FIELD.add(f32(2000, 2000), f32(2000, 2000))
def poisson_conjugate_gradients(right: Array, guess: Array) -> Array:
    """A matrix-free solve on a grid."""

    def operator(x: Array) -> Array:
        p = jnp.pad(x, 1)
        return 4.1 * x - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

    return jax.scipy.sparse.linalg.cg(operator, right, x0=guess, maxiter=200)[0]


@FIELD.add(f32(1500, 1500), f32(1500))
def gmres_dense(matrix: Array, right: Array) -> Array:
    """A restarted solve with a dense matrix."""
    return jax.scipy.sparse.linalg.gmres(lambda x: matrix @ x, right, restart=20, maxiter=5)[0]


@FIELD.add(f32(256, 200, 200), f32(256, 200))
def batched_solves(a: Array, b: Array) -> Array:
    """Many systems of least squares by their normal equations."""
    normal = jnp.einsum("bij,bik->bjk", a, a) + 0.1 * jnp.eye(200)
    return jnp.linalg.solve(normal, jnp.einsum("bij,bi->bj", a, b)[..., None])[..., 0]


@FIELD.add(f32(9, 1024, 1024))
def lattice_boltzmann(f: Array) -> Array:
    """20 steps of streaming and collision on nine directions."""
    directions = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    weights = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4

    def body(_: int, f: Array) -> Array:
        f = jnp.stack([jnp.roll(f[i], step, (0, 1)) for i, step in enumerate(directions)])
        density = f.sum(0)
        u = sum(f[i] * c[0] for i, c in enumerate(directions)) / density
        v = sum(f[i] * c[1] for i, c in enumerate(directions)) / density
        along = [3 * (c[0] * u + c[1] * v) for c in directions]
        rest = 1 - 1.5 * (u**2 + v**2)
        calm = jnp.stack([w * density * (rest + a + a**2 / 2) for w, a in zip(weights, along, strict=True)])
        return f - (f - calm) / 0.6

    return lax.fori_loop(0, 20, body, f)


@FIELD.add(f32(128, 64, 64), f32(128, 64, 64))
def two_electron_integrals(a: Array, b: Array) -> Array:
    """Coulomb and exchange from density-fitted integrals."""
    density = jnp.einsum("pij,pkj->ik", a, b)
    coulomb = jnp.einsum("pij,pkl,kl->ij", a, a, density)
    exchange = jnp.einsum("pik,pjl,kl->ij", a, a, density)
    return coulomb - 0.5 * exchange


@FIELD.add(f32(64, 64, 64, 64), f32(64, 64), f32(64, 64))
def tensor_contraction_fourth_order(integrals: Array, orbitals: Array, energies: Array) -> Array:
    """Integrals turned into another basis, and the second-order energy."""
    turned = jnp.einsum("ijkl,ia,jb,kc,ld->abcd", integrals, orbitals, orbitals, orbitals, orbitals)
    e = jnp.diagonal(energies)
    gap = e[:, None, None, None] + e[None, :, None, None] - e[None, None, :, None] - e - 10
    return (turned * (2 * turned - turned.swapaxes(1, 3)) / gap).sum()


@FIELD.add(f32(500000, 3), f32(500000), f32(128, 128, 128))
def particles_in_cells(place: Array, charge: Array, field: Array) -> tuple[Array, Array]:
    """Charges put on a grid by their eight corners, and the field read back."""
    low = jnp.floor(place)
    part = place - low
    index = low.astype(jnp.int32) % 127
    grid, felt = jnp.zeros((128, 128, 128)), jnp.zeros(500000)
    for x, y, z in [(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)]:
        corner = jnp.array([x, y, z])
        weight = jnp.where(corner == 1, part, 1 - part).prod(-1)
        i, j, k = (index + corner).T
        grid = grid.at[i, j, k].add(charge * weight)
        felt = felt + weight * field[i, j, k]
    return grid, felt
