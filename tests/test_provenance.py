"""Provenance: what a result was made from, according to dvc.lock."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.core.messages import UserError
from pipeline.experiments.provenance import provenance


def files(**hashes: str) -> list[dict[str, str]]:
    return [{"path": path.replace("_", "/"), "md5": digest * 32} for path, digest in hashes.items()]


@pytest.fixture
def lock() -> dict[str, Any]:
    """`words` and `marks` fetch, `join` joins, `result` is made of that; `other` leads to no result."""
    return {
        "words": {"deps": files(code="a"), "outs": files(raw_words="1"), "params": {"params.yaml": {"data.task": "x"}}},
        "marks": {"outs": files(raw_marks="2")},
        "join": {
            "deps": files(code="a", raw_words="1", raw_marks="2"),
            "outs": files(joined="3"),
            "params": {"params.yaml": {"join": {"by": "idx", "seed": 1, "extra": {"a": 2}}}},
        },
        "result": {
            "deps": files(joined="3", packages="b"),
            "outs": files(result="4"),
            "params": {"params.yaml": {"join.seed": 1}, "other.yaml": {"size": 7}},
        },
        "other": {"deps": files(joined="0", code="0"), "outs": files(page="5"), "params": {"params.yaml": {"page": 1}}},
    }


def test_a_result_is_traced_back_through_all_its_stages(lock: dict[str, Any]) -> None:
    found = provenance(Path("result"), lock)
    assert found.parameters == {"data.task": "x", "join.by": "idx", "join.seed": 1, "join.extra": {"a": 2}, "size": 7}
    assert found.code == {"code": "a" * 8, "packages": "b" * 8}
    assert found.sources == {"raw/words": "1" * 8, "raw/marks": "2" * 8}
    assert found.outs == {**found.sources, "joined": "3" * 8, "result": "4" * 8}


@pytest.mark.parametrize("left", [None, {"outs": None}, {"outs": [{"path": "result"}]}])
def test_a_lock_file_that_was_cut_is_told(left: Any, lock: dict[str, Any]) -> None:
    lock["result"] = left
    with pytest.raises(UserError, match=r"^dvc\.lock is not complete$"):
        provenance(Path("result"), lock)


@pytest.mark.parametrize(
    ("stage", "kind", "entry", "message"),
    [
        ("result", "deps", files(joined="9"), "joined: 99999999 in stage result, 33333333 in stage join"),
        ("join", "deps", files(raw_marks="9"), "raw/marks: 99999999 in stage join, 22222222 in stage marks"),
        ("join", "deps", files(code="9", raw_words="1"), "code: 99999999 in stage join, aaaaaaaa in stage words"),
        ("join", "params", {"params.yaml": {"join.seed": 2}}, r"join\.seed: 1 in stage result, 2 in stage join"),
    ],
)
def test_conflicting_records_of_two_stages_are_rejected(
    stage: str, kind: str, entry: Any, message: str, lock: dict[str, Any]
) -> None:
    """Otherwise one of the two would hide the other."""
    lock[stage][kind] = entry
    with pytest.raises(UserError, match=rf"dvc\.lock has two versions of {message}"):
        provenance(Path("result"), lock)


def test_a_result_of_no_stage_is_reported(lock: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"dvc\.lock has no data/predictions"):
        provenance(Path("data/predictions"), lock)


def test_the_check_stage_is_not_part_of_the_provenance(lock: dict[str, Any]) -> None:
    before = provenance(Path("result"), lock)
    lock["check"] = {"deps": files(params="7"), "outs": [{"path": "data/params_checked", "md5": "8" * 32}]}
    lock["words"]["deps"] += lock["check"]["outs"]
    assert provenance(Path("result"), lock) == before
