"""The train and predict stages, with the real Trainer and tiny newly initialized transformers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from conftest import PARAMS, TinyMaker, contents, predict_splits, read_history, sections, train_model
from safetensors.torch import load_file

from pipeline.core.messages import UserError
from pipeline.core.task import Task, read_task
from pipeline.modeling.device import Device, usable_device
from pipeline.params import LOOP_CHOICES, Params, TrainParams, load_params
from pipeline.training.inputs import load_inputs, nested_sample
from pipeline.training.sampler import EpochSampler

Trained = Callable[..., Path]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny: TinyMaker, tokenized: Callable[..., Path]) -> Trained:
    """Train with some parameters changed, and return the directory that contains `classifier` and `metrics`."""

    def run(
        model_type: str = "bert", config: dict[str, Any] | None = None, out: Path | None = None, **changes: Any
    ) -> Path:
        out = out or tmp_path_factory.mktemp("trained")
        return train_model(tokenized(tiny(model_type)), tiny(model_type, **(config or {})), out, **changes)

    return run


@pytest.fixture
def task(tokenized: Callable[..., Path], tiny: TinyMaker) -> Task:
    return read_task(tokenized(tiny()))


def losses(out: Path) -> list[float]:
    return [float(row["loss"]) for row in read_history(out) if row["split"] == "train"]


def report(out: Path) -> dict[str, Any]:
    return json.loads((out / "metrics" / "train.json").read_text())[0]


def weights(out: Path) -> bytes:
    return (out / "classifier" / "model.safetensors").read_bytes()


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def test_gradient_accumulation_gives_the_losses_of_the_whole_batch(trained: Trained) -> None:
    """With 70 pairs, the last step of the epoch has a short batch: 6 pairs in one pass, or 4 and then 2."""
    settings = {"config": NO_DROPOUT, "max_train_samples": 70, "logging_steps": 1}
    single = trained(**settings, batch_size=16)
    accumulated = trained(**settings, batch_size=4, gradient_accumulation_steps=4)
    assert len(losses(single)) == 5
    assert losses(accumulated) == pytest.approx(losses(single), abs=2e-5)
    assert report(accumulated)["effective_batch_size"] == report(single)["effective_batch_size"] == 16


def test_the_seed_determines_every_byte(trained: Trained) -> None:
    first, second, different = (trained(seed=seed, max_train_samples=32) for seed in (1, 1, 2))
    assert contents(first) == contents(second)
    assert weights(first) != weights(different)


def test_length_groups_cover_every_pair_in_batches_of_similar_length_and_random_order() -> None:
    lengths = np.random.default_rng(0).integers(20, 100, 3668)
    sampler = EpochSampler(np.arange(3668), lengths, effective_batch=16, seed=1)
    orders = []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
        assert sorted(orders[-1]) == list(range(3668))
    assert orders[0] != orders[1]
    batches = [lengths[orders[0][start : start + 16]] for start in range(0, 3664, 16)]
    assert np.mean([max(batch) - min(batch) for batch in batches]) < 5, "random batches have about 80"
    means = np.array([np.mean(batch) for batch in batches])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.2, "the lengths of successive batches are uncorrelated"
    sampler.set_epoch(0)
    assert list(sampler) == orders[0], "the order depends only on seed and epoch"


def test_the_training_curves_contain_every_step_and_epoch(trained: Trained) -> None:
    rows = read_history(trained(epochs=2, logging_steps=1, warmup_ratio=0.5))
    steps = [row for row in rows if row["split"] == "train"]
    assert [int(row["step"]) for row in steps] == list(range(1, 9))
    rates = [float(row["lr"]) for row in steps]
    assert max(rates) == pytest.approx(1e-3)
    assert rates.index(max(rates)) in (3, 4), "half of the steps are warmup"
    assert rates[-1] < rates[4]
    scored = [row for row in rows if row["split"] == "validation"]
    assert [float(row["epoch"]) for row in scored] == [1, 2]
    assert all(float(row["loss"]) > 0 and row["accuracy"] and row["f1"] for row in scored)


def test_the_best_or_the_last_epoch_is_kept(trained: Trained) -> None:
    settings = {"epochs": 3, "lr": 0.05, "max_train_samples": 48, "lr_scheduler_type": "constant"}
    settings["metric_for_best_model"] = "loss"
    best, last = trained(keep="best", **settings), trained(keep="last", **settings)
    scores = [float(row["loss"]) for row in read_history(best) if row["split"] == "validation"]
    assert scores == [float(row["loss"]) for row in read_history(last) if row["split"] == "validation"]
    assert report(best)["kept_epoch"] == scores.index(min(scores)) + 1
    assert report(last)["kept_epoch"] == 3
    assert report(best)["kept_epoch"] != 3, "these settings must make the best epoch differ from the last"
    assert weights(best) != weights(last)


def test_the_previous_scores_are_removed_before_training(trained: Trained, tmp_path: Path) -> None:
    """Otherwise an experiment without the stage evaluate would show its parent's scores as its own."""
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "evaluation.json").write_text("{}")
    trained(out=tmp_path, max_train_samples=16)
    assert not (tmp_path / "metrics" / "evaluation.json").exists()


def test_progress_is_logged_without_a_terminal(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipeline.modeling.progress._SECONDS", 0)
    trained(max_train_samples=48, logging_steps=1, epochs=2)
    steps = [message.split(" step ")[0] for message in caplog.messages if " step " in message]
    assert steps.count("training:") == 6 and steps.count("scoring:") > 2


def test_the_last_of_several_best_epochs_is_kept(trained: Trained) -> None:
    settings = {"epochs": 3, "lr": 1e-6, "max_train_samples": 16}
    best, last = trained(keep="best", **settings), trained(keep="last", **settings)
    assert len({row["f1"] for row in read_history(best) if row["split"] == "validation"}) == 1
    assert report(best)["kept_epoch"] == 3
    assert weights(best) == weights(last)


def test_each_epoch_has_one_window_of_each_example() -> None:
    idx = np.array([7, 7, 7, 3, 9, 9])
    sampler = EpochSampler(idx, None, effective_batch=2, seed=1)
    rows = []
    for epoch in range(50):
        sampler.set_epoch(epoch)
        rows.append(list(sampler))
        assert len(rows[-1]) == len(sampler) == 3 and set(idx[rows[-1]]) == {7, 3, 9}
    assert {row for epoch_rows in rows for row in epoch_rows} == set(range(6))


def test_max_train_samples_takes_a_sample_that_a_larger_one_contains(
    short_run: Path, params: Params, tiny: TinyMaker, tokenized: Callable[..., Path]
) -> None:
    assert report(short_run)["steps"] == 2, "20 pairs in batches of 16"
    task, device = read_task(tokenized(tiny())), Device("cpu", "fp32")

    def sample(size: int, seed: int = 1) -> dict[int, int]:
        changed, _ = sections(params, max_train_samples=size, seed=seed)
        training = load_inputs(task, tokenized(tiny()), tiny(), changed, device).training
        return dict(zip(training["idx"], training["labels"], strict=True))

    everything, large, small = sample(100_000), sample(100), sample(10)
    assert list(everything) == list(range(640))
    assert (len(large), len(small)) == (100, 10)
    assert small.items() < large.items() < everything.items()
    assert sample(10).items() == small.items() != sample(10, seed=2).items()
    for part in (large, small):
        expected = len(part) * np.mean(list(everything.values()))
        assert abs(sum(part.values()) - expected) <= 1, "each class has its proportion"


def test_a_nested_sample_of_numbers_and_of_several_labels_is_random() -> None:
    for labels in (np.linspace(0, 5, 1000), np.zeros((1000, 3), dtype=np.int64)):
        sample = nested_sample(labels, 100, seed=0)
        assert len(set(sample)) == 100
        assert 400 < sample.mean() < 600, "the sample comes from the whole range"


def test_extra_training_arguments_reach_the_trainer(trained: Trained) -> None:
    plain, smoothed = (
        losses(trained(logging_steps=1, max_train_samples=16, training_args=arguments))
        for arguments in ({}, {"label_smoothing_factor": 0.5})
    )
    assert smoothed != plain


def test_precision_auto_is_recorded_as_the_chosen_precision(trained: Trained, caplog: pytest.LogCaptureFixture) -> None:
    auto = trained(precision="auto", max_train_samples=16)
    chosen = usable_device("auto").precision
    assert re.search(rf"device: cpu.*{chosen}", caplog.text)
    assert json.loads((auto / "metrics" / "train.json").read_text())[0]["environment"]["precision"] == chosen
    assert json.loads((auto / "classifier" / "provenance.json").read_text())["environment"]["precision"] == chosen
    assert json.loads((auto / "classifier" / "inference.json").read_text())["precision"] == chosen


def test_an_epoch_with_fewer_steps_than_logging_steps_has_a_train_loss(trained: Trained) -> None:
    rows = read_history(trained(max_train_samples=32, epochs=2, logging_steps=20))
    splits = ("train", "validation")
    assert [(row["step"], row["split"]) for row in rows] == [(step, split) for step in "24" for split in splits]


@pytest.fixture(scope="session")
def predicted(tiny: TinyMaker, raw: Path, tokenized: Callable[..., Path]) -> Callable[..., list[dict[str, Any]]]:
    """Predict with a classifier. Returns the rows of validation and test."""

    def run(out: Path, model_type: str = "bert", **changes: Any) -> list[dict[str, Any]]:
        predictions = predict_splits(raw, tokenized(tiny(model_type)), out, **changes)
        tables = (pq.read_table(predictions / f"{split}.parquet") for split in ("validation", "test"))
        return [row for table in tables for row in table.to_pylist()]

    return run


@pytest.fixture(scope="session")
def short_run(trained: Trained) -> Path:
    """A run that hardly changes the model. The initial weights are large, so the model predicts both classes."""
    return trained(config={"initializer_range": 0.2}, max_train_samples=20, lr=1e-7)


def test_padding_does_not_change_the_logits(trained: Trained, predicted: Callable[..., list[dict[str, Any]]]) -> None:
    out = trained("roberta", max_train_samples=16)
    padded, single = (predicted(out, "roberta", batch_size=size, max_samples=20) for size in (20, 1))
    for name in ("logit_0", "logit_1"):
        assert [row[name] for row in padded] == pytest.approx([row[name] for row in single], abs=2e-4)


def test_the_classifier_has_the_standard_files_and_no_paths_of_this_machine(short_run: Path) -> None:
    names = {path.name for path in (short_run / "classifier").iterdir()}
    standard_files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert names == standard_files | {"inference.json", "provenance.json"}
    for name in names - {"model.safetensors"}:
        assert str(short_run.parent) not in (short_run / "classifier" / name).read_text()


def test_the_classifier_records_its_provenance(short_run: Path, raw: Path) -> None:
    provenance = json.loads((short_run / "classifier" / "provenance.json").read_text())
    assert provenance["data"] == json.loads((raw / "source.json").read_text())
    assert provenance["checkpoint"]["checkpoint"] == "a local directory"
    assert provenance["environment"] == json.loads((short_run / "metrics" / "train.json").read_text())[0]["environment"]
    assert (provenance["parameters"]["seed"], provenance["parameters"]["lr"]) == (42, 1e-7), "lr must not be rounded"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "min_lr"),
        ({"optim": "adamw_8bit"}, "bitsandbytes"),
        ({"training_args": {"lr_scheduler_kwargs": {"nonsense": 1}}}, "nonsense"),
        ({"training_args": {"adam_beta1": "high"}}, "adam_beta1"),
        ({"training_args": {"adam_beta_1": 0.5}}, "adam_beta1"),
        ({"training_args": {"learning_rate": 0.5}}, r"train\.lr"),
        ({"training_args": {"max_steps": 5}}, "max_steps"),
        ({"training_args": {"eval_delay": 4}}, "eval_delay"),
    ],
)
def test_an_option_that_the_trainer_rejects_is_an_error_before_training(
    trained: Trained, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        trained(**change)


@pytest.mark.parametrize("model_type", ["bert", "mpnet", "roberta", "gpt2", "bart"])
@pytest.mark.parametrize("engine", ["trainer", "loop"])
def test_frozen_layers_keep_their_weights_and_the_upper_ones_learn(
    engine: str, model_type: str, trained: Trained, tiny: TinyMaker
) -> None:
    out = trained(model_type, freeze_layers=1, engine=engine, max_train_samples=32, lr=0.01)
    before, after = load_file(tiny(model_type) / "model.safetensors"), load_file(out / "classifier/model.safetensors")
    after = {name.partition(".")[2]: weight for name, weight in after.items()}  # without "bert." and so on
    names = {name for name in before if name in after}
    lower = {
        name for name in names if re.search(r"^(?!decoder).*(embed|wte|wpe|shared|relative|(layers?|h)\.0\.)", name)
    }
    assert {name for name in names if torch.equal(before[name], after[name])} == lower


def test_the_frozen_part_has_no_dropout_and_the_rest_has(tokenized: Callable[..., Path], tiny: TinyMaker) -> None:
    for n, is_same in ((1, False), (2, True)):
        params = load_params(PARAMS).train.model_copy(update={"freeze_layers": n})
        inputs = load_inputs(read_task(tokenized(tiny())), tokenized(tiny()), tiny(), params, Device("cpu", "fp32"))
        model: Any = inputs.model.train()
        first, second = (model.bert(torch.arange(5)[None]).last_hidden_state for _ in range(2))
        assert torch.equal(first, second) == is_same


def test_more_frozen_layers_than_the_model_has_are_an_error(trained: Trained) -> None:
    with pytest.raises(UserError, match=r"freeze_layers must be at most 2 .* got 3"):
        trained(freeze_layers=3)


@pytest.mark.parametrize("engine", [("training.trainer", "training.arguments"), ("training.loop",)], ids=str)
def test_every_training_parameter_is_used(engine: tuple[str, ...]) -> None:
    """No key is silently ignored. The loop rejects the keys that it does not support."""
    import importlib
    import inspect

    modules = [importlib.import_module(f"pipeline.{name}") for name in ("train", "training.inputs", *engine)]
    source = "".join(map(inspect.getsource, modules))
    rejected = LOOP_CHOICES if engine == ("training.loop",) else {}
    for key in TrainParams.model_fields:
        assert re.search(rf"params\.{key}\b", source) or key in rejected, key
