"""Download the base model and verify its files."""

from pathlib import Path

from pipeline.cli import run_stage
from pipeline.core.output import atomic_output, write_json
from pipeline.core.paths import PRETRAINED, SOURCE
from pipeline.params import ModelParams, Params
from pipeline.sources.checkpoints import fetch_checkpoint


def pretrained(out: Path, params: ModelParams) -> None:
    """Write the files of the base model and source.json, which says where they come from, to the directory `out`."""
    with atomic_output(out) as draft:
        draft.mkdir()
        write_json(draft / SOURCE, fetch_checkpoint(params.checkpoint, draft))


def main(params: Params) -> None:
    pretrained(PRETRAINED, params.model)


if __name__ == "__main__":
    run_stage("pretrained", main)
