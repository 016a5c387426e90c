"""Look up the commit of a model or a dataset on the Hub, for params.yaml.

Examples:
  # Print FacebookAI/roberta-base@<commit>, the value for model.checkpoint:
  python -m pipeline.pin FacebookAI/roberta-base
  # Run the pipeline with this base model:
  dvc exp run -S model.checkpoint=$(python -m pipeline.pin FacebookAI/roberta-base)
  # Print dair-ai/emotion@<commit>, the value for data.dataset:
  python -m pipeline.pin --dataset dair-ai/emotion

More: docs/choose_a_base_model.md
"""

from pipeline.cli import as_command, command_parser
from pipeline.sources.checkpoints import require_model_files
from pipeline.sources.fetch import pin_dataset, repo_info


def pin(checkpoint: str) -> str:
    """Return `name@commit` for a model. Raises UserError if the Hub does not have it, or not as safetensors."""
    name, _, revision = checkpoint.partition("@")
    current_name, commit, files = repo_info(name, revision, "model")
    require_model_files(files, current_name)
    return f"{current_name}@{commit}"


def main() -> None:
    parser = command_parser("pin", __doc__)
    parser.add_argument("name", metavar="NAME", help="name on the Hub; NAME@BRANCH or NAME@TAG pins another revision")
    parser.add_argument("--dataset", action="store_true", help="NAME is the name of a dataset")
    arguments = parser.parse_args()
    with as_command():
        print(pin_dataset(arguments.name) if arguments.dataset else pin(arguments.name))


if __name__ == "__main__":
    main()
