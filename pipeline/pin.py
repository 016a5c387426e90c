"""Look up the commit of a Hub model, to use it as the base model, or of a dataset.

Examples:
  # Print FacebookAI/roberta-base@<commit>, the value for model.checkpoint:
  python -m pipeline.pin FacebookAI/roberta-base
  # Run the pipeline with this base model:
  dvc exp run \\
      -S model.checkpoint=$(python -m pipeline.pin FacebookAI/roberta-base)
  # Print dair-ai/emotion@<commit>, the value for data.dataset:
  python -m pipeline.pin --dataset dair-ai/emotion

If the default branch has no safetensors, this looks for a pull request in which the Hub's bot converted the weights.

More: docs/data_and_models.md
"""

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError, log
from pipeline.sources.checkpoints import files_to_copy, has_safetensors, is_hub_name, parse_name
from pipeline.sources.fetch import RepoInfo, Unavailable, look_up, newest_conversion, pin_dataset


def pin(checkpoint: str) -> str:
    """Return `name@commit` for a model on the Hub.

    Raises:
        UserError: The Hub does not know the model, or the pretrained stage would reject its files.
    """
    if not is_hub_name(checkpoint):
        raise UserError(f'"{checkpoint}" is not a name on the Hub. A local directory does not need a commit.')
    name, revision = parse_name(checkpoint)
    model = look_up(name, revision, "model")
    if not revision and not has_safetensors(model.files):
        model = _converted(model)
    files = files_to_copy(model.files, model.name)
    log.info("%s at %s has %s", model.name, revision or model.commit, ", ".join(files))
    return f"{model.name}@{model.commit}"


def _converted(model: RepoInfo) -> RepoInfo:
    """Return the model with the safetensors of a conversion pull request, or as it is if there is none."""
    try:
        pull_request = newest_conversion(model.name)
    except Unavailable as error:  # for example because the owner of the model has disabled pull requests
        log.warning("%s has no safetensors, and its pull requests could not be searched: %s", model.name, error)
        return model
    if pull_request is None:
        return model
    converted = look_up(model.name, pull_request.git_reference, "model")
    if not has_safetensors(converted.files):
        return model
    log.warning(
        "%s has no safetensors on its default branch. These weights come from pull request %d by %s, which the owner "
        "of the model has not merged. Look at %s/files before you use them.",
        model.name, pull_request.num, pull_request.author, pull_request.url,
    )  # fmt: skip
    return converted


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
