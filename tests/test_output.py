"""An output appears complete or not at all, and a failure keeps the earlier one."""

from pathlib import Path

import pytest
from conftest import contents, run_python

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output, write_json, write_text


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A directory that an earlier run has written."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "earlier").touch()
    return tmp_path / "out"


def test_a_directory_is_replaced_as_a_whole_even_if_a_process_was_killed_before(earlier: Path, tmp_path: Path) -> None:
    code = """if True:
        import os, pathlib, pipeline.core.output
        with pipeline.core.output.atomic_output(pathlib.Path("out")) as draft:
            draft.mkdir()
            (draft / "half").touch()
            os.kill(os.getpid(), 9)
    """
    assert run_python("-c", code, cwd=tmp_path).returncode == -9
    assert contents(earlier).keys() == {"earlier"}
    with atomic_output(earlier) as draft:
        draft.mkdir()
        (draft / "new").touch()
    assert contents(tmp_path).keys() == {"out/new"}


def test_a_file_never_replaces_a_directory(earlier: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("out")
    for target in (earlier, tmp_path / "link"):
        with pytest.raises(UserError, match=rf"{target.name} is a directory"):
            write_json(target, {})
    assert (earlier / "earlier").exists() and (tmp_path / "link").is_symlink()


def test_a_file_of_the_user_is_not_mistaken_for_a_draft(tmp_path: Path) -> None:
    (tmp_path / ".file.draft").write_text("mine")
    with pytest.raises(FileExistsError, match=r"\.file\.draft"):
        write_text(tmp_path / "file", "new")
    assert (tmp_path / ".file.draft").read_text() == "mine"


def test_json_is_sorted_and_rounded(tmp_path: Path) -> None:
    """Tiny numbers keep six significant digits."""
    write_json(tmp_path / "scores.json", {"rmse": [1.23456789e-7, 1], "accuracy": 0.86764705})
    expected = '{\n  "accuracy": 0.867647,\n  "rmse": [\n    1.23457e-07,\n    1\n  ]\n}\n'
    assert (tmp_path / "scores.json").read_text() == expected
