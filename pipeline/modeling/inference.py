"""The one forward pass that scores: for the predict stage, and for validation during training in both engines."""

import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from pipeline.modeling import distributed
from pipeline.modeling.batching import (
    SCORED_MULTIPLE,
    SCORED_ON_CPU,
    PaddedDataset,
    ScoringBatches,
    ignore_first_signal,
)
from pipeline.modeling.failures import memory_for_batch
from pipeline.params import Precision

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def logits(
    model: Any,
    rows: pa.Table,
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int,
    precision: Precision,
    num_workers: int = 0,
    desc: str = "scoring",
) -> NDArray[np.float32]:
    """Score tokenized rows. Returns shape (n, outputs), in the order of `rows`.

    The logits of a row do not depend on what else is scored with it, see `ScoringBatches`; nor, on a CPU, on
    `batch_size`, the rows of a forward pass on a GPU. The model is where it is to compute. Collective: each rank scores
    its share, and all get all logits. desc: for the progress bar. Raises UserError where memory runs out.
    """
    device = next(model.parameters()).device
    batches = ScoringBatches(rows, SCORED_ON_CPU if device.type == "cpu" else batch_size)
    loader = DataLoader(
        PaddedDataset(rows.select(tokenizer.model_input_names)),
        batch_sampler=batches,
        collate_fn=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=SCORED_MULTIPLE),
        num_workers=num_workers,
        pin_memory=device.type == "cuda",
        worker_init_fn=ignore_first_signal,
    )
    bar = tqdm(loader, desc=desc, leave=False, disable=not sys.stderr.isatty() or distributed.rank() > 0)
    # One autocast over all batches: it keeps the weights that it has cast, and casts them once, not for each batch.
    autocast = torch.autocast(device.type, _AUTOCAST[precision]) if precision in _AUTOCAST else nullcontext()
    model.eval()
    scored = []
    with torch.no_grad(), autocast:
        for batch in bar:
            with memory_for_batch(batch["input_ids"], training=False):
                scored.append(model(**batch.to(device)).logits.float().cpu().numpy())
    of_ranks = np.stack(distributed.all_gather(np.stack(scored)), axis=1)  # batches, ranks, rows, outputs
    gathered = of_ranks.reshape(len(batches.order), -1)
    in_order = np.empty((len(rows), gathered.shape[1]), dtype=gathered.dtype)
    real = batches.order >= 0
    in_order[batches.order[real]] = gathered[real]
    return in_order
