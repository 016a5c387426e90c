"""Time an optimizer step with none of the optimizations in pipeline/modeling, with one of them, with two, and so on.

    PYTHONPATH=. python benchmarks/steps.py --rounds 3

Each row of the table adds one optimization to the row above it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bench import MINILM, ROOT, prepare_clone

OPTIMIZATIONS = ("fast dropout", "plain attention", "kept memory", "first token only")
_WARM_UP = 3  # steps


def time_steps(count: int, optimizations: set[str]) -> list[float]:
    """Train with some of the optimizations, and return the seconds of each of the `count` steps after the warm-up.

    The working directory must be a project that has run the tokenize stage.
    """
    from transformers import TrainerCallback

    from pipeline.core.dataset_files import load_examples
    from pipeline.core.paths import PRETRAINED, TOKENIZED
    from pipeline.core.task import read_task
    from pipeline.modeling import device as device_module
    from pipeline.modeling import loading
    from pipeline.modeling.device import set_up_device
    from pipeline.modeling.loading import load_base_model
    from pipeline.modeling.tokenization import load_tokenizer
    from pipeline.params import load_params
    from pipeline.training import trainer
    from pipeline.training.arguments import training_arguments
    from pipeline.training.losses import SummedLoss
    from pipeline.training.sampler import EpochSampler

    if "kept memory" not in optimizations:
        device_module.keep_memory = lambda: None
    if "fast dropout" not in optimizations:
        trainer.fast_dropout = nullcontext
    if "first token only" not in optimizations:
        loading.first_token_only = lambda model: None

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self._began = time.perf_counter()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seconds.append(time.perf_counter() - self._began)

    seconds: list[float] = []
    params = load_params()
    train_params = params.train.model_copy(update={"epochs": 1, "keep": "last"})
    with tempfile.TemporaryDirectory() as scratch:
        device = set_up_device(train_params.precision, train_params.num_threads)
        task = read_task(TOKENIZED)
        arguments = training_arguments(train_params, params.runtime, device, Path(scratch), task)
        arguments.eval_strategy = arguments.save_strategy = "no"
        tokenizer = load_tokenizer(PRETRAINED)
        pairs = load_examples(TOKENIZED, "train")
        examples = pairs.select(range(count * train_params.batch_size))
        columns = examples.with_format("numpy")
        lengths = columns["length"][:] if train_params.group_by_length else None
        pipeline_trainer = trainer.CorrectedTrainer(
            summed_loss=SummedLoss("single_label_classification", None),
            sampler=EpochSampler(columns["idx"][:], lengths, train_params.batch_size, train_params.seed),
            model=load_base_model(PRETRAINED, device.type),
            args=arguments,
            train_dataset=examples,
            processing_class=tokenizer,
        )
        if "plain attention" not in optimizations:
            pipeline_trainer.model.set_attn_implementation("sdpa")
        pipeline_trainer.add_callback(Clock())
        pipeline_trainer.train()
    return seconds[_WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default=MINILM)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--only", nargs="*", help=argparse.SUPPRESS)  # for the process of one variant
    arguments = parser.parse_args()
    if arguments.only is not None:
        print("median:", statistics.median(time_steps(arguments.steps, set(arguments.only))))
        return
    variants = [OPTIMIZATIONS[:count] for count in range(len(OPTIMIZATIONS) + 1)]
    medians: dict[tuple[str, ...], list[float]] = {variant: [] for variant in variants}
    with tempfile.TemporaryDirectory(prefix="bench ") as scratch:
        source, params = prepare_clone(Path(scratch), arguments.checkpoint, dict(os.environ))
        for _ in range(arguments.rounds):
            for variant in variants:
                command = [sys.executable, __file__, "--steps", str(arguments.steps), "--only", *variant]
                env = os.environ | {"PYTHONPATH": str(ROOT)}
                done = subprocess.run(command, cwd=source, env=env, check=True, capture_output=True, text=True)
                medians[variant].append(float(done.stdout.split("median:")[1]))
    corpus = params["data"]["task"]
    print(f"{corpus}, {arguments.checkpoint}, medians of {arguments.rounds} rounds\n")
    print("| optimizations | ms per step | relative to none |\n|---|---|---|")
    for variant in variants:
        milliseconds = 1000 * statistics.median(medians[variant])
        ratios = [seconds / plain for seconds, plain in zip(medians[variant], medians[()], strict=True)]
        print(f"| {' + '.join(variant) or 'none'} | {milliseconds:.0f} | {statistics.median(ratios):.0%} |")


if __name__ == "__main__":
    main()
