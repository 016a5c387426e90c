"""Is B better than A? Compare the predictions of two revisions, row by row.

A and B are each a branch, a tag, a commit, an experiment, "workspace", or a group of runs made by pipeline.seeds.
The verdict is about the task's first metric on test: validation has chosen the epoch, so its scores are optimistic.
Where the labels of test are not known it rests on validation all the same, and says so. Two groups are compared over
both seeds and examples: B is better, or worse, where the 95 % interval of the difference excludes 0. For two runs, the
verdict only says whether these two models differ: by the interval, and by a test, p < 0.05, which is McNemar's exact
one for accuracy, else a randomization test.
"""

import argparse
import signal

from pipeline.cli import as_command
from pipeline.experiments.comparison import Side, compare
from pipeline.experiments.render import as_json, as_markdown, as_text
from pipeline.experiments.revisions import WORKSPACE, runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.compare", description=__doc__)
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B", nargs="?", default=WORKSPACE, help=f'default: "{WORKSPACE}"')
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--md", dest="form", action="store_const", const=as_markdown, help="Markdown, for a pull request")
    form.add_argument("--json", dest="form", action="store_const", const=as_json, help="JSON, for machines")
    arguments = parser.parse_args()
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` that has read enough is no error
    with as_command():
        a, b = (Side(name, runs(name)) for name in (arguments.a, arguments.b))
        print((arguments.form or as_text)(compare(a, b)))


if __name__ == "__main__":
    main()
