"""Shares as people read them: in percent, their differences in points."""


def percent(share: float, digits: int = 1) -> str:
    """A share in percent, without the percent sign."""
    return f"{100 * share:.{digits}f}"


def points(difference: float, digits: int = 1) -> str:
    """A difference of shares in percentage points, with its sign; zero is "+0.0"."""
    return f"{round(100 * difference, digits) + 0.0:+.{digits}f}"  # + 0.0: no "-0.0"
