"""Models, and the bytes of keys and values that a token has in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattload.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What sets the size of a model's cache; the source is each model's published configuration.

    ``latent_dim`` is kv_lora_rank + qk_rope_head_dim of multi-head latent attention (MLA), which
    stores one vector a layer in place of keys and values; 0 without it.
    """

    layers: int
    kv_heads: int = 0
    head_dim: int = 0
    latent_dim: int = 0

    @property
    def vectors(self) -> int:
        """The vectors of a layer that are stored apart: keys and values, or the latent one."""
        return 1 if self.latent_dim else 2

    def vector_bytes(self, dtype_bytes: int) -> int:
        """Return the bytes of one vector of one token, over all ranks."""
        return (self.latent_dim or self.kv_heads * self.head_dim) * dtype_bytes

    def bytes_per_token(self, dtype_bytes: int) -> int:
        """Return layers x vectors x elements x bytes of a number."""
        return self.layers * self.vectors * self.vector_bytes(dtype_bytes)


MODELS: Mapping[str, Model] = {
    "tiny-1b": Model(layers=12, kv_heads=8, head_dim=64),
    "llama3.1-8b": Model(layers=32, kv_heads=8, head_dim=128),
    "mistral-7b": Model(layers=32, kv_heads=8, head_dim=128),
    "llama3.1-70b": Model(layers=80, kv_heads=8, head_dim=128),
    "llama3.1-405b": Model(layers=126, kv_heads=8, head_dim=128),
    "llama2-7b": Model(layers=32, kv_heads=32, head_dim=128),
    "qwen3-32b": Model(layers=64, kv_heads=8, head_dim=128),
    "gpt-oss-120b": Model(layers=36, kv_heads=8, head_dim=64),
    "gpt-oss-20b": Model(layers=24, kv_heads=8, head_dim=64),
    "deepseek-v3": Model(layers=61, latent_dim=576),
}
"""``tiny-1b`` is the small model of tests and demonstrations: 24,576 bytes a token."""


def model_named(name: str) -> Model:
    """Return a model; raises ``ConfigError`` for an unknown name."""
    found = MODELS.get(name)
    if found is None:
        raise ConfigError(
            f"workload.model={name} is unknown; use one of {', '.join(MODELS)}, or set "
            "workload.bytes_per_token"
        )
    return found
