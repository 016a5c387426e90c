"""A classifier as an ONNX model: made with torch's exporter, and run by ONNX Runtime."""

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import torch

_LONGEST = 4096  # rows of a batch; tokens are bounded by the model's own positions
_BLOCK = 128  # weights with one scale
_INT8 = 4  # ONNX Runtime's number for products of int8


class _Logits(torch.nn.Module):
    """Positional inputs, and the logits as the only output."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self._model, self._names = model, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._model(**dict(zip(self._names, inputs, strict=True))).logits
        return logits


def export(model: Any, names: list[str], max_length: int, path: Path) -> None:
    """Write a model in fp32 to a file, for batches of any size. names: of its inputs, in order."""
    batch, tokens = torch.export.Dim("batch", min=1, max=_LONGEST), torch.export.Dim("tokens", min=2, max=max_length)
    example = torch.full((2, min(8, max_length)), 3)
    example_mask = torch.ones_like(example)
    example_mask[1, -1] = 0  # without padding, transformers leaves the attention mask out
    of_name = {"attention_mask": example_mask, "token_type_ids": torch.zeros_like(example)}
    inputs = tuple(of_name.get(name, example) for name in names)
    shapes = (tuple({0: batch, 1: tokens} for _ in names),)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            _Logits(model.eval(), names), inputs, dynamo=True, dynamic_shapes=shapes,
            input_names=names, output_names=["logits"], verbose=False,
        )  # fmt: skip
    assert program is not None
    program.save(path)


def quantize(path: Path, out: Path) -> None:
    """Write a model whose matrix products have int8 weights in blocks of 128, and int8 inputs, row by row.

    Each block has a scale of its own. `quantize_dynamic`, with one scale for a whole batch of inputs, is three times as
    fast, but a few large ones of them cost MPNet a point of accuracy, and with one scale a weight matrix five points.
    """
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    logging.getLogger("onnxruntime.quantization").setLevel(logging.ERROR)
    quantizer = MatMulNBitsQuantizer(
        onnx.load(path), bits=8, block_size=_BLOCK, is_symmetric=True, accuracy_level=_INT8
    )
    quantizer.process()
    onnx.save(quantizer.model.model, out)


class OnnxModel(torch.nn.Module):
    """A model file that is called as a classifier of transformers is, on the CPU and with torch's threads."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [given.name for given in self._session.get_inputs()]
        self._where = torch.nn.Parameter(torch.empty(0), requires_grad=False)  # the scorer asks where a model is

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        [logits] = self._session.run(["logits"], {name: inputs[name].numpy() for name in self._names})
        return {"logits": torch.from_numpy(logits)}
