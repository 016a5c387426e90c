"""Look up the commit of a model or a dataset on the Hub, for params.yaml.

Examples:
  # Print FacebookAI/roberta-base@<commit>, the value for model.checkpoint:
  python -m pipeline.pin FacebookAI/roberta-base
  # Run the pipeline with this base model:
  dvc exp run \\
      -S model.checkpoint=$(python -m pipeline.pin FacebookAI/roberta-base)
  # Print dair-ai/emotion@<commit>, the value for data.dataset:
  python -m pipeline.pin --dataset dair-ai/emotion

More: docs/data_and_models.md
"""

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError, log
from pipeline.sources.checkpoints import files_to_copy, is_hub_name, parse_name
from pipeline.sources.fetch import pin_dataset, repo_info


def pin(checkpoint: str) -> str:
    """Return `name@commit` for a model on the Hub.

    Raises:
        UserError: The Hub does not know the model, or the pretrained stage would reject its files.
    """
    if not is_hub_name(checkpoint):
        raise UserError(f'"{checkpoint}" is not a name on the Hub. A local directory does not need a commit.')
    name, revision = parse_name(checkpoint)
    model = repo_info(name, revision, "model")
    files = files_to_copy(model.files, model.name)
    log.info("%s at %s has %s", model.name, revision or model.commit, ", ".join(files))
    return f"{model.name}@{model.commit}"


def main() -> None:
    parser = command_parser("pin", __doc__)
    parser.add_argument(
        "name", metavar="NAME",
        help="name of the model on the Hub, or of a cataloged model without its organization; NAME@BRANCH or NAME@TAG "
        "looks up another revision (default: the default branch)",
    )  # fmt: skip
    parser.add_argument("--dataset", action="store_true", help="NAME is the name of a dataset on the Hub")
    arguments = parser.parse_args()
    with as_command():
        print(pin_dataset(arguments.name) if arguments.dataset else pin(arguments.name))


if __name__ == "__main__":
    main()
