"""Fine-tune a model in a single script, as the Hugging Face course teaches it. bench.py compares the pipeline with it.

Source: https://huggingface.co/learn/llm-course/chapter3/3
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from datasets import DatasetDict, load_dataset
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="directory with train.parquet, validation.parquet and test.parquet")
    parser.add_argument("checkpoint", help="directory with the base model")
    parser.add_argument("out", type=Path, help="directory for times.json and the files that the Trainer saves")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-train-samples", type=int, help="train on the first n pairs only")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()

    splits = ("train", "validation", "test")
    files = {split: f"{args.data}/{split}.parquet" for split in splits}
    raw = DatasetDict({split: load_dataset("parquet", data_files=file, split="train") for split, file in files.items()})
    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)

    def tokenize(batch):
        return tokenizer(batch["sentence1"], batch["sentence2"], truncation=True)

    tokenized = raw.map(tokenize, batched=True)
    if args.max_train_samples:
        tokenized["train"] = tokenized["train"].select(range(args.max_train_samples))
    model = AutoModelForSequenceClassification.from_pretrained(args.checkpoint, num_labels=2)

    def compute_metrics(scored):
        predicted = np.argmax(scored.predictions, axis=-1)
        return {"accuracy": accuracy_score(scored.label_ids, predicted), "f1": f1_score(scored.label_ids, predicted)}

    training_args = TrainingArguments(
        str(args.out),
        eval_strategy="epoch",
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        seed=args.seed,
    )
    trainer = Trainer(
        model,
        training_args,
        train_dataset=tokenized["train"],
        eval_dataset=tokenized["validation"],
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
    )
    times = {"training": time.time()}
    trainer.train()
    times["prediction"] = time.time()
    scores = {split: trainer.predict(tokenized[split]).metrics["test_f1"] for split in ("validation", "test")}
    times["end"] = time.time()
    (args.out / "times.json").write_text(json.dumps({"times": times, "f1": scores}))


if __name__ == "__main__":
    main()
