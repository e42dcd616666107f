"""Images: convolutions, rays, correlations, boxes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .entry import Array, Entry, f32, tiles

_NUMBERS = ("NHWC", "HWIO", "NHWC")


def _convolve(x: Array, kernel: Array, stride: int = 1) -> Array:
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=_NUMBERS)


def _pool(x: Array, size: int = 2) -> Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, 2, 2, 1), "SAME")


def normalised_batch_training(images: Array, first: Array, second: Array, last: Array) -> Array:
    """The stem of an image network with batch normalisation, trained.

    https://github.com/tensorflow/tensorflow/issues/4735
    Reported: a batch of 256 images; fails at [256, 112, 112, 64]. Cause: convolutions, their normalised forms and what
    the gradient keeps of them, 0.8 GB each. By hand: a smaller batch, which is another normalisation.
    """

    def normal(x: Array) -> Array:
        return jax.nn.relu((x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-3))

    x = _pool(normal(_convolve(images, first, 2)), 3)
    x = normal(_convolve(x, second))
    logits = x.mean((1, 2)) @ last
    return (jax.nn.logsumexp(logits, -1) - logits[:, 0]).mean()


def evaluation_in_one_batch(images: Array, first: Array, second: Array, last: Array) -> Array:
    """All test images through a small network at once.

    https://github.com/JackonYang/captcha-tensorflow/issues/13
    Reported: 2,000 images of 100 x 60; fails at [2000, 32, 100, 60]. Cause: the convolutions of all of them, 1.5 GB. By
    hand: fewer images.
    """
    x = _pool(jax.nn.relu(_convolve(images, first)))
    x = _pool(jax.nn.relu(_convolve(x, second)))
    return jax.nn.log_softmax(x.reshape(x.shape[0], -1) @ last).argmax(-1)


def segmentation_of_large_images(images: Array, down: Array, deep: Array, up: Array, last: Array) -> Array:
    """A network that goes down and up again, with a skip between, trained on a few large images.

    https://github.com/keras-team/keras/issues/10477
    Reported: images of 1280 x 800, four encoders and four decoders on 11 GB; here one each, 8 images, 64 channels.
    Cause: 2 GB for each layer at full size, twice with the gradient. By hand: smaller batches; why it failed in the
    middle of a training stayed open.
    """
    here = jax.nn.relu(_convolve(images, down))
    below = jax.nn.relu(_convolve(_pool(here), deep))
    back = jnp.repeat(jnp.repeat(below, 2, 1), 2, 2)
    x = jax.nn.relu(_convolve(jnp.concatenate([here, back], -1), up))
    return jnp.log1p(jnp.exp(-(x @ last))).mean()


def _encoded(points: Array, count: int = 6) -> Array:
    scaled = points[..., None] * 2.0 ** jnp.arange(count, dtype=jnp.float32)
    waves = jnp.concatenate([jnp.sin(scaled), jnp.cos(scaled)], -1).reshape(*points.shape[:-1], -1)
    return jnp.concatenate([points, waves], -1)


def _colours(origins: Array, ways: Array, depths: Array, layers: Array, head: Array) -> Array:
    points = origins[:, None] + ways[:, None] * depths[:, None]
    x = jnp.pad(_encoded(points), ((0, 0), (0, 0), (0, layers.shape[1] - 39)))
    for layer in layers:
        x = jax.nn.relu(x @ layer)
    seen = x @ head
    opaque = 1 - jnp.exp(-jax.nn.relu(seen[..., 3]) * jnp.diff(depths, append=depths[-1:] + 1))
    through = jnp.cumprod(1 - opaque + 1e-10, axis=1) / (1 - opaque + 1e-10)
    return ((opaque * through)[..., None] * jax.nn.sigmoid(seen[..., :3])).sum(1)


def field_along_rays(origins: Array, ways: Array, target: Array, depths: Array, layers: Array, head: Array) -> Array:
    """A step of training a radiance field: a network at points along rays, then light summed along them.

    https://github.com/google-research/multinerf/issues/131
    Reported: a dozen buffers of [1048576, 256], 1 GB each. Cause: the gradient keeps every layer at every point. By
    hand: fewer rays in a batch, more steps.
    """
    return ((_colours(origins, ways, depths, layers, head) - target) ** 2).mean()


def rendered_image(origins: Array, ways: Array, depths: Array, layers: Array, head: Array) -> Array:
    """An image of a radiance field, without a gradient.

    https://github.com/jax-ml/jax/issues/3865
    Reported: 640 samples a ray where 64 work; here 100 x 100 rays. Cause: each layer at all 6.4 million points, 6.5 GB.
    By hand: lax.map over batches of points, 32,768 in TensorFlow's version.
    """
    return _colours(origins, ways, depths, layers, head)


def _rendered_by_hand(origins: Array, ways: Array, depths: Array, layers: Array, head: Array) -> Array:
    def some(rays: tuple[Array, Array]) -> Array:
        return _colours(*rays, depths, layers, head)

    return lax.map(some, (tiles(origins, 50), tiles(ways, 50))).reshape(-1, 3)


def correlation_pyramid(first: Array, second: Array, flow: Array) -> Array:
    """Correlations of all pixels of two images, pooled twice, and looked up around where a flow points.

    https://github.com/princeton-vl/RAFT/issues/39
    Reported: images of 1080 x 1920. Cause: 135 x 240 features against each other, 4.2 GB, a scaled copy and coarser
    levels. By hand: a kernel that computes what is looked up, two to three times slower; scaling in place.
    """
    height, width, channels = first.shape
    levels = jnp.einsum("ijc,klc->ijkl", first, second) / channels**0.5
    levels = levels.reshape(height * width, height, width)
    count = jnp.arange(height * width)
    start = jnp.stack([count // width, count % width], 1) + flow.reshape(-1, 2)
    around = jnp.stack(jnp.meshgrid(jnp.arange(-3, 4), jnp.arange(-3, 4), indexing="ij"), -1).reshape(-1, 2)
    found = []
    for level in range(2):
        size = jnp.array(levels.shape[1:])
        places = jnp.round(start / 2**level).astype(jnp.int32)[:, None] + around
        inside = ((places >= 0) & (places < size)).all(-1)
        places = jnp.clip(places, 0, size - 1)
        found.append(jnp.where(inside, levels[count[:, None], places[..., 0], places[..., 1]], 0))
        levels = levels[:, : height // 2 * 2, : width // 2 * 2]
        levels = levels.reshape(-1, height // 2, 2, width // 2, 2).mean((2, 4))
    return jnp.concatenate(found, -1)


def boxes_to_anchors(anchors: Array, boxes: Array) -> tuple[Array, Array]:
    """The object of each anchor by overlap; each object also gets the anchor that overlaps it most.

    https://github.com/open-edge-platform/geti/pull/2228
    Reported: images with over 10,000 objects; 64 GB do not suffice for one data set. Cause: overlaps of all anchors and
    objects, 8 GB for 200,000 anchors, from corners and areas of that size. By hand: objects in parts, merged.
    """
    low = jnp.maximum(anchors[:, None, :2], boxes[None, :, :2])
    high = jnp.minimum(anchors[:, None, 2:], boxes[None, :, 2:])
    shared = jnp.prod(jnp.maximum(high - low, 0), -1)
    sizes = [jnp.prod(jnp.abs(each[:, 2:] - each[:, :2]), -1) for each in (anchors, boxes)]
    overlap = shared / (sizes[0][:, None] + sizes[1][None] - shared + 1e-6)
    chosen = jnp.where(overlap.max(1) > 0.5, overlap.argmax(1), -1)
    best = overlap.max(0)
    claimed = (overlap == best[None]) & (best[None] > 0.1)
    return jnp.where(claimed.any(1), claimed.argmax(1), chosen), overlap.max(1)


ENTRIES = (
    Entry(
        normalised_batch_training,
        (f32(256, 224, 224, 3), f32(7, 7, 3, 64), f32(3, 3, 64, 192), f32(192, 269)),
        (f32(16, 32, 32, 3), f32(7, 7, 3, 16), f32(3, 3, 16, 16), f32(16, 10)),
        (f32(16, 128, 128, 3), f32(7, 7, 3, 64), f32(3, 3, 64, 96), f32(96, 50)),
        gradient=(1, 2, 3),
    ),
    Entry(
        evaluation_in_one_batch,
        (f32(2000, 100, 60, 1), f32(5, 5, 1, 32), f32(5, 5, 32, 64), f32(24_000, 62)),
        (f32(12, 20, 12, 1), f32(5, 5, 1, 8), f32(5, 5, 8, 8), f32(120, 10)),
        (f32(200, 100, 60, 1), f32(5, 5, 1, 32), f32(5, 5, 32, 32), f32(12_000, 62)),
    ),
    Entry(
        segmentation_of_large_images,
        (f32(8, 800, 1280, 3), f32(3, 3, 3, 64), f32(3, 3, 64, 128), f32(3, 3, 192, 64), f32(64)),
        (f32(4, 32, 48, 3), f32(3, 3, 3, 8), f32(3, 3, 8, 8), f32(3, 3, 16, 8), f32(8)),
        (f32(4, 160, 256, 3), f32(3, 3, 3, 16), f32(3, 3, 16, 32), f32(3, 3, 48, 16), f32(16)),
        gradient=(1, 2, 3, 4),
    ),
    Entry(
        field_along_rays,
        (f32(16_384, 3), f32(16_384, 3), f32(16_384, 3), f32(64), f32(8, 256, 256), f32(256, 4)),
        (f32(60, 3), f32(60, 3), f32(60, 3), f32(8), f32(2, 40, 40), f32(40, 4)),
        (f32(256, 3), f32(256, 3), f32(256, 3), f32(32), f32(4, 128, 128), f32(128, 4)),
        gradient=(4, 5),
    ),
    Entry(
        rendered_image,
        (f32(10_000, 3), f32(10_000, 3), f32(640), f32(6, 256, 256), f32(256, 4)),
        (f32(60, 3), f32(60, 3), f32(8), f32(2, 40, 40), f32(40, 4)),
        (f32(500, 3), f32(500, 3), f32(64), f32(4, 128, 128), f32(128, 4)),
        _rendered_by_hand,
    ),
    Entry(
        correlation_pyramid,
        (f32(135, 240, 256), f32(135, 240, 256), f32(135, 240, 2)),
        (f32(12, 16, 8), f32(12, 16, 8), f32(12, 16, 2)),
        (f32(36, 64, 64), f32(36, 64, 64), f32(36, 64, 2)),
    ),
    Entry(
        boxes_to_anchors,
        (f32(200_000, 4), f32(10_000, 4)),
        (f32(400, 4), f32(100, 4)),
        (f32(10_000, 4), f32(500, 4)),
    ),
)
