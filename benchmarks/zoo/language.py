"""Language models: decoders, losses over a vocabulary, experts, embeddings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .programs import KEY, Array, Field, Tree, adam, adam_state, bf16, f32, i32, sgd

FIELD = Field()

Layer = tuple[Array, Array, Array, Array, Array, Array]


def layer_shapes(width: int, *lead: int) -> Tree:
    """The six arrays of a transformer layer, with leading dimensions."""
    sizes = ((width,), (width, 3 * width), (width, width), (width,), (width, 4 * width), (4 * width, width))
    return tuple(f32(*lead, *each) for each in sizes)


def normalise(x: Array, scale: Array) -> Array:
    """Root mean square normalisation of the last dimension."""
    return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


def decoder_layer(x: Array, layer: Layer, heads: int = 8) -> Array:
    """A layer with causal attention; x is (batch, length, width)."""
    before, into, out, middle, up, down = layer
    batch, length, width = x.shape
    q, k, v = jnp.moveaxis((normalise(x, before) @ into).reshape(batch, length, heads, 3, -1), 3, 0)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
    x = x + mixed.reshape(x.shape) @ out
    return x + jax.nn.gelu(normalise(x, middle) @ up) @ down


def cross_entropy(logits: Array, targets: Array) -> Array:
    """The mean of -log p(target)."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1).mean()


@FIELD.add(f32(8192, 1024), f32(1024, 50000), i32(8192))
def vocabulary_loss_gradient(hidden: Array, table: Array, targets: Array) -> tuple[Array, ...]:
    """The gradient of the cross entropy over a large vocabulary."""
    return jax.grad(lambda h, w: cross_entropy(h @ w, targets), argnums=(0, 1))(hidden, table)


@FIELD.add(bf16(4096, 2048), bf16(128000, 2048), i32(4096))
def vocabulary_loss_bf16(hidden: Array, table: Array, targets: Array) -> Array:
    """The loss and its gradient in the hidden states, logits in bfloat16, the rest in float32."""

    def loss(hidden: Array) -> Array:
        logits = jnp.einsum("nd,vd->nv", hidden, table).astype(jnp.float32)
        picked = (jax.nn.one_hot(targets, 128000) * logits).sum(-1)
        return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()

    return jax.grad(loss)(hidden)


@FIELD.add(f32(4096, 512), f32(512, 32000), i32(4096))
def label_smoothing_and_z_loss(hidden: Array, table: Array, targets: Array) -> Array:
    """The gradient of a smoothed cross entropy with a penalty on the normaliser."""

    def loss(table: Array) -> Array:
        logits = hidden @ table
        normaliser = jax.nn.logsumexp(logits, axis=-1)
        smooth = jax.nn.one_hot(targets, 32000) * 0.9 + 0.1 / 32000
        return (normaliser - (smooth * logits).sum(-1) + 1e-4 * normaliser**2).mean()

    return jax.grad(loss)(table)


@FIELD.add((layer_shapes(512, 8), f32(16000, 512)), i32(4, 512))
def gpt_step_scanned(parameters: Tree, tokens: Array) -> Tree:
    """A step of a decoder whose layers are scanned."""

    def loss(parameters: Tree, tokens: Array) -> Array:
        layers, table = parameters
        x, _ = lax.scan(lambda x, layer: (decoder_layer(x, layer), None), table[tokens], layers)
        return cross_entropy(x[:, :-1] @ table.T, tokens[:, 1:])

    return sgd(loss)(parameters, tokens)


@FIELD.add((layer_shapes(512, 8), f32(16000, 512)), i32(4, 512))
def gpt_step_scanned_remat(parameters: Tree, tokens: Array) -> Tree:
    """The same with each layer computed again on the way back."""

    def loss(parameters: Tree, tokens: Array) -> Array:
        layers, table = parameters
        body = jax.checkpoint(lambda x, layer: (decoder_layer(x, layer), None))
        x, _ = lax.scan(body, table[tokens], layers)
        return cross_entropy(x[:, :-1] @ table.T, tokens[:, 1:])

    return sgd(loss)(parameters, tokens)


@FIELD.add(adam_state(([layer_shapes(384)] * 4, f32(8000, 384))), f32(), i32(8, 512))
def gpt_step_unrolled_adam(state: Tree, count: Array, tokens: Array) -> Tree:
    """An Adam step of a decoder with four layers in a Python loop."""

    def loss(parameters: Tree, tokens: Array) -> Array:
        layers, table = parameters
        x = table[tokens]
        for layer in layers:
            x = decoder_layer(x, layer, 6)
        return cross_entropy(x[:, :-1] @ table.T, tokens[:, 1:])

    return adam(loss)(state, count, tokens)


@FIELD.add((layer_shapes(512, 6), f32(16000, 512)), i32(4, 4, 512))
def gpt_accumulated_gradients(parameters: Tree, batches: Array) -> Tree:
    """The sum of the gradients of four small batches."""

    def loss(parameters: Tree, tokens: Array) -> Array:
        layers, table = parameters
        x, _ = lax.scan(lambda x, layer: (decoder_layer(x, layer), None), table[tokens], layers)
        return cross_entropy(x[:, :-1] @ table.T, tokens[:, 1:])

    def body(total: Tree, tokens: Array) -> tuple[Tree, None]:
        return jax.tree.map(jnp.add, total, jax.grad(loss)(parameters, tokens)), None

    return lax.scan(body, jax.tree.map(jnp.zeros_like, parameters), batches)[0]


@FIELD.add((layer_shapes(1024, 12), f32(32000, 1024)), i32(1, 2048))
def gpt_forward(parameters: Tree, tokens: Array) -> Array:
    """The probabilities of the next token."""
    layers, table = parameters
    x, _ = lax.scan(lambda x, layer: (decoder_layer(x, layer, 16), None), table[tokens], layers)
    return jax.nn.softmax(x[:, -1] @ table.T)


@FIELD.add(f32(8192, 512), f32(512, 16), f32(16, 512, 2048), f32(16, 2048, 512))
def experts_dense_dispatch(x: Array, router: Array, up: Array, down: Array) -> Array:
    """All experts on all tokens, weighted by the two best."""
    weights, chosen = lax.top_k(jax.nn.softmax(x @ router), 2)
    gates = (jax.nn.one_hot(chosen, 16) * weights[..., None]).sum(1)
    hidden = jax.nn.silu(jnp.einsum("nd,edf->nef", x, up))
    return jnp.einsum("nef,efd,ne->nd", hidden, down, gates)


@FIELD.add((f32(512, 8), f32(8, 512, 1024), f32(8, 1024, 512)), f32(4096, 512))
def experts_capacity_gradient(parameters: Tree, x: Array) -> Tree:
    """The gradient of experts with a capacity, by one-hot dispatch and combine tensors."""

    def loss(parameters: Tree, x: Array) -> Array:
        router, up, down = parameters
        gates = jax.nn.softmax(x @ router)
        chosen = jax.nn.one_hot(gates.argmax(-1), 8)
        place = (jnp.cumsum(chosen, axis=0) - 1) * chosen
        dispatch = chosen[..., None] * jax.nn.one_hot(place.astype(jnp.int32), 640)
        inside = jnp.einsum("nec,nd->ecd", dispatch, x)
        outside = jnp.einsum("ecf,efd->ecd", jax.nn.relu(jnp.einsum("ecd,edf->ecf", inside, up)), down)
        out = jnp.einsum("nec,ecd->nd", dispatch * gates[..., None], outside)
        return (out**2).mean() + 0.01 * (gates.mean(0) * chosen.mean(0)).sum() * 8

    return jax.grad(loss)(parameters, x)


@FIELD.add(f32(16384, 512), f32(512, 32), f32(32, 512, 1024), f32(32, 1024, 512))
def experts_sorted(x: Array, router: Array, up: Array, down: Array) -> Array:
    """Tokens sorted by expert, in equal groups."""
    expert = (x @ router).argmax(-1)
    order = jnp.argsort(expert)
    groups = x[order].reshape(32, 512, 512)
    out = jnp.einsum("egf,efd->egd", jax.nn.gelu(jnp.einsum("egd,edf->egf", groups, up)), down)
    return jnp.zeros_like(x).at[order].set(out.reshape(x.shape))


@FIELD.add(f32(200000, 256), i32(4096, 32), f32(4096))
def bag_of_words_step(table: Array, words: Array, labels: Array) -> tuple[Array, Array]:
    """A step on an embedding table read by bags of words."""

    def loss(table: Array) -> Array:
        score = table[words].mean(1).sum(-1)
        return jnp.mean(jnp.logaddexp(0, -labels * score))

    value, gradient = jax.value_and_grad(loss)(table)
    return table - 0.1 * gradient, value


@FIELD.add((f32(100000, 200), f32(100000, 200)), i32(8192), i32(8192), i32(8192, 20))
def skip_gram_step(parameters: Tree, words: Array, context: Array, negative: Array) -> Tree:
    """A step of word vectors with negative samples."""

    def loss(parameters: Tree, words: Array, context: Array, negative: Array) -> Array:
        inner, outer = parameters
        at = inner[words]
        good = (at * outer[context]).sum(-1)
        bad = jnp.einsum("nd,nkd->nk", at, outer[negative])
        return -(jax.nn.log_sigmoid(good) + jax.nn.log_sigmoid(-bad).sum(-1)).mean()

    return sgd(loss)(parameters, words, context, negative)


@FIELD.add(f32(8, 400, 5000), i32(8, 60), i32(8))
def ctc_forward(logits: Array, labels: Array, lengths: Array) -> Array:
    """The forward recursion of connectionist temporal classification, and its gradient."""

    def loss(logits: Array) -> Array:
        logs = jax.nn.log_softmax(logits)
        blank = logs[..., :1]
        picked = jnp.take_along_axis(logs, labels[:, None], axis=-1)
        both = jnp.stack([jnp.broadcast_to(blank, picked.shape), picked], axis=-1).reshape(8, 400, 120)

        def body(alpha: Array, row: Array) -> tuple[Array, Array]:
            one = jnp.pad(alpha, ((0, 0), (1, 0)), constant_values=-1e30)[:, :-1]
            alpha = jnp.logaddexp(alpha, one) + row
            return alpha, alpha

        start = jnp.full((8, 120), -1e30).at[:, 0].set(0)
        alphas = lax.scan(body, start, jnp.moveaxis(both, 1, 0))[1]
        return -jnp.take_along_axis(alphas[-1], 2 * lengths[:, None] - 1, axis=1).mean()

    return jax.grad(loss)(logits)


@FIELD.add(f32(64, 50000), f32(64), KEY)
def nucleus_sampling(logits: Array, temperature: Array, key: Array) -> Array:
    """A token of the most likely ones that make up nine tenths."""
    scaled = logits / temperature[:, None]
    order = jnp.argsort(-scaled, axis=-1)
    ordered = jnp.take_along_axis(scaled, order, axis=-1)
    total = jnp.cumsum(jax.nn.softmax(ordered), axis=-1)
    kept = jnp.where(total - jax.nn.softmax(ordered) < 0.9, ordered, -jnp.inf)
    chosen = jax.random.categorical(key, kept, axis=-1)
    return jnp.take_along_axis(order, chosen[:, None], axis=-1)[:, 0]


@FIELD.add((layer_shapes(512, 4), f32(8000, 512)), i32(4, 512), i32(4, 512))
def preference_loss_gradient(parameters: Tree, better: Array, worse: Array) -> Tree:
    """The gradient of a loss on pairs of answers."""

    def logs(parameters: Tree, tokens: Array) -> Array:
        layers, table = parameters
        x, _ = lax.scan(lambda x, layer: (decoder_layer(x, layer), None), table[tokens], layers)
        each = jax.nn.log_softmax(x[:, :-1] @ table.T)
        return jnp.take_along_axis(each, tokens[:, 1:, None], axis=-1).sum((1, 2))

    def loss(parameters: Tree) -> Array:
        return -jax.nn.log_sigmoid(0.1 * (logs(parameters, better) - logs(parameters, worse))).mean()

    return jax.grad(loss)(parameters)
