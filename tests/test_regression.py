"""A regression is trained on standardized labels, and predicts in the units of the labels."""

import csv
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from conftest import TinyMaker, data_params, predict_splits, read_history, tokenize_params, train_model
from kinds import generate_rows
from safetensors.torch import load_file

from pipeline.core.dataset_files import load_examples
from pipeline.core.messages import UserError
from pipeline.core.output import write_json
from pipeline.core.paths import SOURCE
from pipeline.download import download
from pipeline.modeling.loading import load_fine_tuned_model
from pipeline.modeling.regression_head import final_layer, fold_standardization, replace_head
from pipeline.tokenize_data import tokenize

Run = Callable[..., Path]


@pytest.fixture
def run(tiny: TinyMaker, tmp_path: Path) -> Run:
    """Train on texts whose label is a function of their length, and return the directory of all outputs."""

    def run(name: str, label: Callable[[float], float], base: Path | None = None, **changes: Any) -> Path:
        out, checkpoint, rows = tmp_path / name, base or tiny(), generate_rows("regression")
        (out / "files").mkdir(parents=True)
        for split, size in (("train", 160), ("validation", 60)):
            with (out / "files" / f"{split}.csv").open("w", newline="") as file:
                texts = ((text, label(value)) for text, _, value in itertools.islice(rows, size))
                csv.writer(file).writerows([("text", "label"), *texts])
        data = data_params(task="custom", directory=str(out / "files"), problem_type="regression")
        download(out / "raw", data)
        tokenize(out / "raw", checkpoint, out / "tokenized", tokenize_params(64), 1)
        settings = {"max_train_samples": None, "logging_steps": 1, **changes}
        train_model(out / "tokenized", checkpoint, out, **settings)
        predict_splits(out / "raw", out / "tokenized", out)
        return out

    return run


def predictions(out: Path) -> dict[str, Any]:
    return pq.read_table(out / "predictions" / "validation.parquet").to_pydict()  # type: ignore[no-any-return]


def test_a_short_run_predicts_in_the_units_of_the_labels(run: Run) -> None:
    """The labels are years. A plain head starts at 0 and would need thousands of steps. This run has 20."""
    out = run("years", lambda value: 1950 + 10 * value, epochs=2)
    rows = predictions(out)
    errors = np.subtract(rows["prediction"], rows["label"])
    assert np.sqrt(np.square(errors).mean()) < 1.05 * np.std(rows["label"])
    stock = transformers.AutoModelForSequenceClassification.from_pretrained(out / "classifier")
    names = load_file(out / "classifier" / "model.safetensors").keys()
    assert names == stock.state_dict().keys()
    require_precise_predictions_in_bf16(out / "classifier")


def require_precise_predictions_in_bf16(classifier: Path) -> None:
    model: Any = load_fine_tuned_model(classifier, "cpu")
    tokens = torch.arange(5, 25).reshape(2, 10)
    with torch.no_grad():
        expected = model(tokens).logits
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(tokens).logits
    assert logits.dtype == torch.float32
    assert (logits - expected).abs().max() < 0.5  # bf16 has steps of 8 at this magnitude


def test_losses_are_squared_errors_in_the_units_of_the_labels(run: Run) -> None:
    """The model hardly changes in this run, so its predictions stay close to the mean of the labels."""
    out = run("run", lambda value: 500 + 100 * value, lr=1e-9, metric_for_best_model="rmse")
    labels = np.array(load_examples(out / "tokenized", "train")["labels"][:])
    *steps, epoch = read_history(out)
    assert float(epoch["loss"]) == pytest.approx(float(epoch["rmse"]) ** 2, rel=1e-4)
    assert np.mean([float(row["loss"]) for row in steps]) == pytest.approx(labels.var(), rel=0.2)


def test_training_starts_from_the_predictions_of_a_fine_tuned_base_model(run: Run) -> None:
    first = run("first", lambda value: 20 * value, epochs=2)
    write_json(first / "classifier" / SOURCE, {"checkpoint": "a local directory", "revision": None, "files": {}})
    second = run("again", lambda value: 20 * value, base=first / "classifier", lr=1e-12)
    np.testing.assert_allclose(predictions(second)["prediction"], predictions(first)["prediction"], rtol=1e-4)


def test_label_smoothing_needs_classes(run: Run) -> None:
    with pytest.raises(UserError, match="label_smoothing_factor"):
        run("run", lambda value: value, training_args={"label_smoothing_factor": 0.1})


def test_labels_that_fp32_cannot_tell_apart_are_an_error(run: Run) -> None:
    with pytest.raises(UserError, match=r"labels of train do not differ enough .* 1e\+09"):
        run("run", lambda value: 1e9 + value)


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "electra", "deberta-v2", "llama"])
def test_a_folded_head_gives_the_same_predictions_in_every_architecture(model_type: str) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    if model_type == "distilbert":
        sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}
    config = transformers.AutoConfig.for_model(
        model_type, vocab_size=50, num_labels=1, pad_token_id=1, bos_token_id=2, eos_token_id=3, **sizes
    )
    torch.manual_seed(0)
    model: Any = transformers.AutoModelForSequenceClassification.from_config(config).eval()  # type: ignore[no-untyped-call]
    tokens = torch.arange(5, 25).reshape(2, 10)
    with torch.no_grad():
        plain = model(tokens).logits
        names = set(model.state_dict())
        name = final_layer(model)
        assert name is not None
        replace_head(model, names)
        torch.testing.assert_close(model(tokens).logits, plain)
        head = model.get_submodule(name)
        mean = 0.0 if head.bias is None else 100.0
        head.mean, head.scale = mean, 3.0
        scaled = model(tokens).logits
        torch.testing.assert_close(scaled, mean + 3 * plain)
        stock: Any = transformers.AutoModelForSequenceClassification.from_config(config).eval()  # type: ignore[no-untyped-call]
        stock.load_state_dict(fold_standardization(model, model.state_dict()))
        torch.testing.assert_close(stock(tokens).logits, scaled)
