"""Exports gradients of language models of Hugging Face's library, as its users write their loss.

    pip install transformers==4.49.0 flax jax==0.10.2
    python benchmarks/language_models.py gpt2 --pick=arange --batch=8 --tokens=1024 -o gpt2.mlir
    exla-opt gpt2.mlir --memory-limit=6.58GB -o smaller.mlir
    python benchmarks/language_models.py gpt2 --batch=8 --tokens=1024 --platform=cuda -o gpt2.mlir
    exla-opt gpt2.mlir --target=cuda:h200 --memory-limit=3GB -o smaller.mlir

Weights are only shapes, dropout is on. The labels are picked from the log-probabilities, by an index that counts
(`logp[jnp.arange(n), labels]`) or by `take_along_axis`.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

# By name the model's class, its configuration's, and what of that is not the default.
MODELS: dict[str, tuple[str, str, dict[str, int]]] = {
    "gpt2": ("FlaxGPT2LMHeadModel", "GPT2Config", {}),
    "bert": ("FlaxBertForMaskedLM", "BertConfig", {}),
    "t5-small": ("FlaxT5ForConditionalGeneration", "T5Config", {"decoder_start_token_id": 0}),
}
PICKS = ("arange", "along")


def main() -> None:
    """Write one module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=list(MODELS))
    parser.add_argument("--pick", choices=PICKS, default="arange", help="how labels are picked [arange]")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--platform", choices=("cpu", "cuda"), default="cpu", help="what the module is for [cpu]")
    parser.add_argument("-o", type=Path, required=True, dest="output")
    arguments = parser.parse_args()
    text = export(arguments.model, arguments.pick, arguments.batch, arguments.tokens, arguments.platform)
    arguments.output.write_text(text)


def export(name: str, pick: str, batch: int, tokens: int, platform: str = "cpu") -> str:
    """The loss of a model and its gradient by all weights, as StableHLO text for a CPU or for a GPU (`cuda`)."""
    library = importlib.import_module("transformers")
    kind, settings, changed = MODELS[name]
    _allow_old_clip()
    model = getattr(library, kind)(getattr(library, settings)(**changed), _do_init=False)
    weights = jax.eval_shape(lambda key: model.init_weights(key, (1, 8)), jax.random.key(0))

    def loss(weights: Any, words: Any, labels: Any, key: Any) -> Any:
        given = {"decoder_input_ids": words} if name.startswith("t5") else {}
        made = model(words, params=weights, dropout_rng=key, train=True, **given)
        return cross_entropy(made.logits, labels, pick)

    words = jax.ShapeDtypeStruct((batch, tokens), jnp.int32)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    exported = jax.export.export(jax.jit(jax.value_and_grad(loss)), platforms=[platform])(weights, words, words, key)
    return str(exported.mlir_module())


def cross_entropy(logits: Any, labels: Any, pick: str) -> Any:
    """The mean over all words of -log p(label), with the labels picked in one of two ways."""
    logp = jax.nn.log_softmax(logits)
    if pick == "along":
        return -jnp.take_along_axis(logp, labels[..., None], -1).mean()
    rows = logp.reshape(-1, logp.shape[-1])
    return -rows[jnp.arange(len(rows)), labels.reshape(-1)].mean()


def _allow_old_clip() -> None:
    """Let jnp.clip take the names of bounds that the library still uses."""
    clip = jnp.clip

    def with_old_names(x: Any, low: Any = None, high: Any = None, a_min: Any = None, a_max: Any = None) -> Any:
        return clip(x, low if a_min is None else a_min, high if a_max is None else a_max)

    setattr(jnp, "clip", with_old_names)  # noqa: B010


if __name__ == "__main__":
    main()
