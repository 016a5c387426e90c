"""Export a classifier to ONNX with transformers, then quantize it and run it with ONNX Runtime."""

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.exporters.configs import OnnxConfig
from transformers.exporters.exporter_onnx import OnnxExporter

_MOST_EXAMPLES = 4096  # per batch
_BLOCK_SIZE = 128  # weights that share a scale
_INT8_PRODUCTS = 4  # ONNX Runtime's `accuracy_level` for int8 inputs


def export(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int, path: Path) -> None:
    """Export a model in fp32, for batches of up to 4,096 examples and texts of up to `max_length` tokens."""
    texts = ["one text", "a longer text"]  # Their lengths differ, so that the attention mask has padding.
    inputs = dict(tokenizer(texts, padding=True, truncation=True, max_length=max_length, return_tensors="pt"))
    shape = {0: torch.export.Dim("batch", max=_MOST_EXAMPLES), 1: torch.export.Dim("tokens", min=2, max=max_length)}
    exporter: Any = OnnxExporter()  # type: ignore[no-untyped-call]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):  # It prints every step.
        exported = exporter.export(model, inputs, OnnxConfig(dynamic_shapes=dict.fromkeys(inputs, shape)))
    OnnxExporter.save_program(exported.program, path)


def quantize(path: Path, out: Path) -> None:
    """Write a copy of a model whose matrix products use int8 weights and int8 inputs.

    Each block of 128 weights has its own scale, and so has each row of the inputs. The quantizers of transformers call
    `quantize_dynamic` or `quantize_static`, which use one scale for a whole batch of inputs. That is three times as
    fast, but a few large inputs then cost MPNet one point of accuracy, or five points if each weight matrix has only
    one scale.
    """
    logging.getLogger("onnxruntime.quantization").setLevel(logging.ERROR)
    quantizer = MatMulNBitsQuantizer(
        onnx.load(path), bits=8, block_size=_BLOCK_SIZE, is_symmetric=True, accuracy_level=_INT8_PRODUCTS
    )
    quantizer.process()
    onnx.save(quantizer.model.model, out)


class OnnxModel(torch.nn.Module):
    """An ONNX file with the interface of a transformers classifier. It runs on the CPU with torch's threads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [entry.name for entry in self._session.get_inputs()]

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        [logits] = self._session.run(["logits"], {name: inputs[name].numpy() for name in self._names})
        return {"logits": torch.from_numpy(logits)}
