"""The log, and the class of errors that a user can fix."""

import logging

log = logging.getLogger("pipeline")


class UserError(Exception):
    """An error that the user can fix. Its message is one line: the key or file, what was found, and what to do."""


def one_line(error: object) -> str:
    """Return the message of an error as part of a sentence: one line without the final period."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def printable(text: str) -> str:
    """Replace line breaks and control characters with spaces, so that untrusted text cannot forge lines of output."""
    return "".join(character if character.isprintable() else " " for character in text)
