"""Ask the Hub for the commit of a model, and print its name with it, as model.checkpoint takes it.

NAME is a model's name on the Hub, or one of the catalog without its organization. NAME@REVISION asks for a branch or
a tag instead of the default branch. Only NAME@COMMIT goes to stdout:
dvc exp run -S model.checkpoint=$(python -m pipeline.pin FacebookAI/roberta-base)
"""

from pipeline.cli import as_command, command_parser
from pipeline.core.messages import UserError, log
from pipeline.sources.checkpoints import is_path, needed, parse_name
from pipeline.sources.fetch import Unavailable, hub_model


def pin(checkpoint: str) -> str:
    """Return `name@commit` of a model on the Hub.

    Raises:
        UserError: The Hub does not know the model, or the model's files are ones that the stage pretrained rejects.
    """
    if is_path(checkpoint):
        raise UserError(f"{checkpoint} is a path; a local directory needs no commit, only a name on the Hub does")
    name, revision = parse_name(checkpoint)
    try:
        model = hub_model(name, revision or None)
    except Unavailable as error:
        raise UserError(f"the Hub: {error}; check the name, and that this machine reaches the Hub") from None
    log.info(
        "%s at %s has %s", model.name, revision or "its default branch", ", ".join(needed(model.files, model.name))
    )
    return f"{model.name}@{model.commit}"


def main() -> None:
    parser = command_parser("pin", __doc__)
    parser.add_argument("name", metavar="NAME")
    arguments = parser.parse_args()
    with as_command():
        print(pin(arguments.name))


if __name__ == "__main__":
    main()
