"""Download the base model and verify its files."""

from pathlib import Path

from pipeline.cli import run
from pipeline.core.output import atomic_output, write_json
from pipeline.core.packages import require_locked
from pipeline.core.paths import PRETRAINED, SOURCE
from pipeline.params import ModelParams, keys_of, load_params, require_unchanged
from pipeline.sources.checkpoints import fetch_checkpoint


def pretrained(out: Path, params: ModelParams) -> None:
    """Write the files of the base model and source.json, which says where they come from, to the directory `out`."""
    with atomic_output(out) as draft:
        draft.mkdir()
        write_json(draft / SOURCE, fetch_checkpoint(params.checkpoint, draft))


def main() -> None:
    require_locked()
    params = load_params()
    pretrained(PRETRAINED, params.model)
    require_unchanged(params, ["model"])


if __name__ == "__main__":
    run(main, keys_of("model"))
