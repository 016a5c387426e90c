"""Outputs are written atomically, and only one process at a time can lock a directory."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run_python

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output, directory_lock, write_json

LOCK_THEN = """if True:
    import os, pathlib, sys, time, pipeline.core.output
    with pipeline.core.output.directory_lock(pathlib.Path(sys.argv[1])) as acquired:
        print(acquired, flush=True)
        """


def test_a_directory_is_locked_by_one_process_until_it_ends(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", LOCK_THEN + "time.sleep(60)", str(tmp_path)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        with directory_lock(tmp_path) as acquired:
            assert not acquired
        process.kill()
        process.wait()
        with directory_lock(tmp_path) as acquired:
            assert acquired


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A data loader worker outlives a killed run by a few seconds."""
    fork_and_die = """
        if os.fork() == 0:
            os.close(1), os.close(2), time.sleep(5), os._exit(0)
        os.kill(os.getpid(), 9)
    """
    assert run_python("-c", LOCK_THEN + fork_and_die, str(tmp_path), cwd=tmp_path).returncode == -9
    with directory_lock(tmp_path) as acquired:
        assert acquired


def test_a_missing_directory_is_neither_locked_nor_created(tmp_path: Path) -> None:
    with directory_lock(tmp_path / "gone") as acquired:
        assert not acquired
    assert not list(tmp_path.iterdir())


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    code = """if True:
        import os, pathlib, sys, pipeline.core.output
        with pipeline.core.output.atomic_output(pathlib.Path(sys.argv[1])) as draft:
            draft.touch()
            os.kill(os.getpid(), 9)
    """
    assert run_python("-c", code, "out", cwd=tmp_path).returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == [".out.draft"]
    write_json(tmp_path / "out", {})
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_output_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    with atomic_output(tmp_path / "out") as draft:
        draft.write_text("first")
        with (
            pytest.raises(UserError, match=r"out is being written by another process\. Try again"),
            atomic_output(tmp_path / "out"),
        ):
            pass
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"out": "first"}


def test_a_file_of_the_user_is_not_mistaken_for_a_draft(tmp_path: Path) -> None:
    (tmp_path / ".file.draft").touch()
    with pytest.raises(UserError, match=r"file cannot be written: File exists \(\S*\.file\.draft\)"):
        write_json(tmp_path / "file", {})


def test_a_file_never_replaces_a_directory(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis").touch()
    (tmp_path / "link").symlink_to("out")
    for target in (tmp_path / "out", tmp_path / "link"):
        with pytest.raises(UserError, match=rf"{target} is a directory\. Name a file"):
            write_json(target, {})
    assert {path.name for path in tmp_path.rglob("*")} == {"out", "thesis", "link"}
    assert (tmp_path / "link").is_symlink()


def test_a_name_that_is_too_long_is_reported_in_one_line(tmp_path: Path) -> None:
    for name in (250 * "a", 300 * "a"):
        with pytest.raises(UserError, match="aaa cannot be written: File name too long"):
            write_json(tmp_path / name, {})
        assert not list(tmp_path.iterdir())


def test_a_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for content in ("first", "second"):
        with atomic_output(target) as draft:
            draft.mkdir()
            (draft / content).touch()
        assert [path.name for path in target.iterdir()] == [content]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_keeps_the_earlier_output(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "earlier").touch()
    with pytest.raises(KeyError), atomic_output(target) as draft:
        draft.mkdir()
        (draft / "half").touch()
        raise KeyError
    assert [path.name for path in target.iterdir()] == ["earlier"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_earlier_output_is_restored_if_nothing_replaces_it(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "earlier").touch()
    with pytest.raises(FileNotFoundError), atomic_output(target):
        pass  # nothing was written
    assert [path.name for path in target.iterdir()] == ["earlier"]


def test_an_unwritable_output_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a directory should be")
    with (
        pytest.raises(UserError, match=r"data/raw cannot be written: (File exists|Not a directory)"),
        atomic_output(tmp_path / "data" / "raw"),
    ):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_reported_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="out cannot be written: No space left on device"),
        atomic_output(tmp_path / "out") as draft,
    ):
        draft.mkdir()
        with open("/dev/full", "w") as full:  # noqa: PTH123
            full.write("x")
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_input_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match=r"config\.json"), atomic_output(tmp_path / "out"):
        raise PermissionError(errno.EACCES, "Permission denied", "config.json")


@pytest.mark.parametrize("name", ["out", "missing/out"])
def test_an_output_in_a_read_only_directory_is_reported(name: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    code = """if True:
        import os, pathlib, sys, pipeline.core.output
        if os.geteuid() == 0:
            os.seteuid(65534)  # Root may write to any directory.
        pipeline.core.output.write_json(pathlib.Path(sys.argv[1]), {})
    """
    done = run_python("-c", code, name, cwd=tmp_path)
    assert done.stderr.endswith(f"UserError: {name} cannot be written: Permission denied\n")


def test_json_is_sorted_and_rounded(tmp_path: Path) -> None:
    """Tiny numbers keep six significant digits."""
    write_json(tmp_path / "scores.json", {"rmse": [1.23456789e-7, 1], "accuracy": 0.86764705})
    expected = '{\n  "accuracy": 0.867647,\n  "rmse": [\n    1.23457e-07,\n    1\n  ]\n}\n'
    assert (tmp_path / "scores.json").read_text() == expected
