"""The models whose checkpoints are written: dimensions, parallelism, and what was published.

Dimensions and parallelism are those of DLIO's and MLPerf Storage's ``llama3_*.yaml`` (vocabulary
128256, weights in fp16, optimizer in fp32). 70b keeps their 128 attention heads, where the real
model has 64: its K and V projections come out at half their size.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from wattload.core.errors import ConfigError

VOCABULARY = 128256
MODEL_BYTES = 2
OPTIMIZER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A Llama-3 model as its checkpoint is made.

    ``tensor_parallel x pipeline_parallel x data_parallel`` ranks save it, sharded by ``zero_stage``
    (1: the optimizer over all ranks, weights by the first data-parallel group; 3: weights too).
    ``published`` is the size that MLPerf prints, ``published_remark`` what is wrong with it.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    zero_stage: int
    published: str
    published_remark: str

    @property
    def rank_count(self) -> int:
        """How many ranks the whole checkpoint has."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def kv_width(self) -> int:
        """The columns of the K and of the V projection."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def layer_parameters(self) -> int:
        """The parameters of one transformer layer: two norms, attention, gated MLP."""
        attention = self.hidden * (self.hidden + 2 * self.kv_width) + self.hidden**2
        return 2 * self.hidden + attention + 3 * self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """All parameters, by DLIO's ``get_num_parameters``: embedding, layers, norm and head."""
        return 2 * VOCABULARY * self.hidden + self.layers * self.layer_parameters + self.hidden


_GIB_AS_GB = "published in GB, is in fact GiB"

_MODELS = (
    Model(
        name="8b",
        layers=32,
        hidden=4096,
        ffn=14336,
        heads=32,
        kv_heads=8,
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=8,
        zero_stage=3,
        published="105 GB",
        published_remark=f"105 is {_GIB_AS_GB}: 104.705 GiB are 112.43 GB",
    ),
    Model(
        name="70b",
        layers=80,
        hidden=8192,
        ffn=28672,
        heads=128,
        kv_heads=8,
        tensor_parallel=8,
        pipeline_parallel=1,
        data_parallel=8,
        zero_stage=3,
        published="912 GB",
        published_remark=f"912 is {_GIB_AS_GB}: 911.212 GiB are 978.41 GB",
    ),
    Model(
        name="405b",
        layers=126,
        hidden=16384,
        ffn=53248,
        heads=128,
        kv_heads=8,
        tensor_parallel=8,
        pipeline_parallel=32,
        data_parallel=2,
        zero_stage=1,
        published="5290 GB",
        published_remark=f"5.29 TB is {_GIB_AS_GB}, over 1000: 5292.249 GiB are 5.68 TB",
    ),
    Model(
        name="1t",
        layers=128,
        hidden=25872,
        ffn=98304,
        heads=192,
        kv_heads=32,
        tensor_parallel=8,
        pipeline_parallel=64,
        data_parallel=2,
        zero_stage=1,
        published="18000 GB",
        published_remark=(
            "18 TB is wrong: 15426.589 GiB are 16.56 TB; the total of 15426 was taken for the "
            "optimizer's share, and a sixth of it added once more for the weights"
        ),
    ),
)

MODELS = {model.name: model for model in _MODELS}

SERVER_NAME = "405b_server"
SERVER_BYTES = 415_000_000_000
SERVER_LAYERS = 8
SERVER_REMARK = (
    "405b_server is the published 415 GB of a Llama-405B checkpoint per 8-GPU server, whose "
    "derivation is unpublished; it is made of 8 layers, embedding and head at 14 B a parameter "
    "(415.86 GB) scaled to 415 GB, and no stage of a real 16-stage pipeline holds both embedding "
    "and head: their mean is 355.1 GB"
)

SUBSET_RANKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """The first 8 ranks of a model, as MLPerf Storage v2.0 lets one node stand for a cluster.

    ``published_gb`` is the size printed for it; the figures are GiB. Those of 70b and 8b are the
    first ranks' own bytes. Those of 405b and 1t are even shares of the published totals (weights
    over tensor and pipeline ranks, optimizer over all): the first ranks hold the embedding besides,
    and the weights of 1t were published too large.
    """

    model: str
    published_gb: int


SUBSETS = {
    "mlperf_subset": Subset(model="405b", published_gb=94),
    "mlperf_subset_8b": Subset(model="8b", published_gb=105),
    "mlperf_subset_70b": Subset(model="70b", published_gb=114),
    "mlperf_subset_405b": Subset(model="405b", published_gb=94),
    "mlperf_subset_1t": Subset(model="1t", published_gb=161),
}

NAMES = (*MODELS, SERVER_NAME, *SUBSETS)


def model_named(name: str) -> Model:
    """Return a model by its name; ``405b_server`` and the subsets are parts of a model.

    Raises ``ConfigError`` for a name that is none of ``NAMES``.
    """
    if name == SERVER_NAME:
        return MODELS["405b"]
    if name in SUBSETS:
        return MODELS[SUBSETS[name].model]
    if name not in MODELS:
        near = get_close_matches(name, NAMES, n=1, cutoff=0.5)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"model must be one of {', '.join(NAMES)}, got {name!r}{meant}")
    return MODELS[name]
