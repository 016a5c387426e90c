"""The log, and the class of errors that a user can fix."""

import logging

log = logging.getLogger("pipeline")


class UserError(Exception):
    """An error that the user can fix. Its message is one line: the key or file, what was found, and what to do."""


def printable(text: str) -> str:
    """Replace line breaks and control characters with spaces, so that untrusted text cannot forge lines of output."""
    return "".join(character if character.isprintable() else " " for character in text)
