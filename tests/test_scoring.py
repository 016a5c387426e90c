"""A pair's logits do not depend, in any bit, on what else is scored or in which order."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from conftest import ROOT
from pipeline.core.tables import open_arrow

from pipeline.modeling.device import set_up_device
from pipeline.modeling.loading import load_classifier, load_tokenizer

# Instruction sets that a CPU can be limited to: torch's name of the capability, and the environment variables.
SETS = {
    "AVX2": ("avx2", {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
    "AVX-512": ("avx512_f", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
    "AVX-512 with bf16": ("avx512_bf16", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}),
    "AMX": ("amx_bf16", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX"}),
}
# Wide enough for kernels that are chosen by the size of the batch.
WIDE = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536, "num_hidden_layers": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_a_pairs_logits_do_not_depend_on_the_rest_of_the_data(
    name: str, tiny: Callable[..., Path], tokenized: Callable[..., Path]
) -> None:
    flag, settings = SETS[name]
    if not torch.cpu.get_capabilities().get(flag):
        pytest.skip(f"this CPU has no {name}")
    checkpoint = tiny("bert", **WIDE)
    command = [sys.executable, __file__, str(tokenized(checkpoint)), str(checkpoint)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT), **settings}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"bf16": {"differ": 0, "of": 40}, "fp32": {"differ": 0, "of": 40}}


def logits(pairs: pa.Table, checkpoint: Path, precision: str) -> np.ndarray:
    """The logits of the predict stage before rounding."""
    from pipeline.modeling import inference

    device = set_up_device(precision, None)  # type: ignore[arg-type]
    torch.manual_seed(0)
    model, tokenizer = load_classifier(checkpoint, device.type), load_tokenizer(checkpoint)
    return inference.logits(model, pairs, tokenizer, len(pairs), precision)  # type: ignore[arg-type]


def main(tokenized: Path, checkpoint: Path) -> None:
    """Score validation, then every third pair again in reverse order, and print how many differ."""
    pairs = open_arrow(tokenized, "validation", "tokenize")
    found = {}
    for precision in ("bf16", "fp32"):
        every = logits(pairs, checkpoint, precision)
        part = list(range(len(pairs) - 1, -1, -3))
        again = logits(pairs.take(part), checkpoint, precision)
        differ = (every[part] != again).any(axis=1).sum()
        found[precision] = {"differ": int(differ), "of": len(part)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
