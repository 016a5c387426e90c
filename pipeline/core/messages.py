"""What people are told: the log, and errors that they can mend."""

import logging

log = logging.getLogger("pipeline")


class UserError(Exception):
    """Something that the user can mend. Its text is one line: the key or file, what was found there, what to do."""


def printable(text: str) -> str:
    """Replace line breaks and the characters that a terminal obeys: what others wrote must not pass for our lines."""
    return "".join(character if character.isprintable() else " " for character in text)
