"""The garbage collector pauses for imports, and is as before afterwards."""

import gc
import sys
from pathlib import Path

import pytest

from pipeline.core.collector import collector_paused


def test_the_collector_pauses_and_then_skips_what_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_for_this_test.py").write_text("things = [[] for _ in range(1000)]")
    monkeypatch.syspath_prepend(str(tmp_path))
    gc.unfreeze()
    with collector_paused():
        assert not gc.isenabled()
        import made_for_this_test  # type: ignore[import-not-found]
    assert gc.isenabled()
    assert gc.get_freeze_count() > 1000
    gc.unfreeze()
    monkeypatch.delitem(sys.modules, made_for_this_test.__name__)


def test_what_a_second_run_in_a_process_makes_is_collected_as_ever() -> None:
    frozen = gc.get_freeze_count()
    with pytest.raises(ValueError, match="no import"), collector_paused():
        raise ValueError("no import")
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
