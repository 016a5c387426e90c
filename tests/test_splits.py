"""Validation and test rows made from train's: exact, deterministic, and never test in place of validation."""

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from custom_files import content, csv, download_custom, read, rows

from pipeline.core.messages import UserError

SPLITS = ("train", "validation", "test")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def members(raw: Path) -> dict[str, list[int]]:
    return {split: [row["idx"] for row in read(raw, split)] for split in SPLITS if (raw / f"{split}.parquet").exists()}


def warnings(raw: Path) -> str:
    return "\n".join(content(raw, "data_card")["warnings"])


def sizes(raw: Path) -> tuple[int, ...]:
    return tuple(map(len, members(raw).values()))


@pytest.mark.parametrize("split_type", ["random", "stratify"])
def test_counts_are_exact_and_a_seed_decides_which_rows(split_type: str) -> None:
    files = {"train.csv": csv(rows(200, ["a", "b", "b", "b"]))}
    first = members(download_custom(files, split={"type": split_type}))
    assert [len(indices) for indices in first.values()] == [160, 20, 20]
    assert sorted(chain.from_iterable(first.values())) == list(range(200))
    assert members(download_custom(files, split={"type": split_type})) == first
    assert members(download_custom(files, split={"type": split_type, "seed": 7})) != first


def test_stratify_gives_each_class_its_share_in_each_split() -> None:
    raw = download_custom({"train.csv": csv(rows(210, ["a", "b", "b", "b", "c", "c", "c"]))})
    for split, share in zip(SPLITS, (0.8, 0.1, 0.1), strict=True):
        counts = Counter(row["label"] for row in read(raw, split))
        assert all(abs(counts[label] - share * size) <= 1 for label, size in ((0, 30), (1, 90), (2, 90)))


def labels_of(raw: Path) -> dict[str, Counter[str]]:
    names = content(raw, "task")["labels"]
    return {split: Counter(names[row["label"]] for row in read(raw, split)) for split in members(raw)}


RARE = ["one", *2 * ["two"], *3 * ["three"], *4 * ["four"]]


@pytest.mark.parametrize("shares", [[0.8, 0.1, 0.1], [0.2, 0.4, 0.4], [0.6, 0.4, 0]])
@pytest.mark.parametrize("column", [None, "source"])
def test_stratify_keeps_rows_of_each_rare_class_in_train(shares: list[float], column: str | None) -> None:
    plain = [*rows(90, ["a", "b"]), *((f"text {number}", label) for number, label in enumerate(RARE))]
    files = {"train.csv": csv([(*row, "xy"[number % 2]) for number, row in enumerate(plain)], "text,label,source")}
    for seed in range(12):
        split = {"seed": seed, "fractions": shares, "column": column}
        train = labels_of(download_custom(files, split=split))["train"]  # type: ignore[arg-type]
        assert [train[label] >= least for label, least in (("one", 1), ("two", 1), ("three", 2), ("four", 2))] == 4 * [
            True
        ]


def test_stratify_moves_nothing_but_rare_classes_and_tells_which_cannot_be_scored() -> None:
    common = rows(200, ["a", "b"])
    for seed in range(12):
        raw = download_custom({"train.csv": csv([*common, ("a lone row", "rare")])}, split={"seed": seed})
        counts = labels_of(raw)
        assert counts["train"]["rare"] == 1
        for split, share in zip(SPLITS, (0.8, 0.1, 0.1), strict=True):
            assert all(abs(counts[split][label] - share * 100) <= 1 for label in "ab")
        for split in ("validation", "test"):
            assert f"{split}: has no row with 1 of 3 labels ('rare'), which cannot be scored there" in warnings(raw)
    assert "cannot be scored" not in warnings(download_custom({"train.csv": csv(common)}))


@pytest.mark.parametrize("split", [{"type": "random"}, {"type": "hash"}, {"type": "group", "column": "user"}])
def test_a_class_that_train_does_not_have_is_told_by_name(split: dict[str, Any]) -> None:
    seen = 0
    for number in range(30):
        made = [
            *((text, label, text) for text, label in rows(60, ["a", "b"])),
            (f"a lone row {number}", "rare", f"{number}"),
        ]
        raw = download_custom({"train.csv": csv(made, "text,label,user")}, split={**split, "seed": number})
        counts = labels_of(raw)
        for later in ("validation", "test"):
            is_reported = f"{later}: rows with a label that train does not have ('rare'): 1 of " in warnings(raw)
            assert is_reported == (counts[later]["rare"] == 1)
            seen += is_reported
    assert seen


def test_stratify_by_a_column() -> None:
    examples = [(text, label, "xy"[number >= 100]) for number, (text, label) in enumerate(rows(200, ["a", "b"]))]
    raw = download_custom(
        {"train.csv": csv(examples, "text,label,source")}, split={"column": "source"}, slice_columns=["source"]
    )
    assert Counter(row["source"] for row in read(raw, "test")) == {"x": 10, "y": 10}


@pytest.mark.parametrize(
    ("file_rows", "shares", "expected"),
    [
        ({}, [0.5, 0.25, 0.25], (100, 50, 50)),
        ({}, [0.9, 0.1, 0], (180, 20)),
        ({"dev": 10}, [0.8, 0.1, 0.1], (178, 10, 22)),
        ({"test": 10}, [0.8, 0.1, 0.1], (178, 22, 10)),
        ({"dev": 10, "test": 12}, [0.8, 0.1, 0.1], (200, 10, 12)),
        ({"dev": 10}, [0.8, 0.2, 0], (200, 10)),
    ],
)
def test_only_what_has_no_file_is_made(
    file_rows: dict[str, int], shares: list[float], expected: tuple[int, ...]
) -> None:
    files = {f"{name}.csv": csv(rows(size, ["a", "b"], 1)) for name, size in file_rows.items()}
    raw = download_custom({"train.csv": csv(rows(200, ["a", "b"])), **files}, split={"fractions": shares})
    assert sizes(raw) == expected
    assert content(raw, "task")["predicted"] == list(members(raw))[1:]


def test_by_hash_each_row_keeps_its_split_when_rows_are_added() -> None:
    few, more = rows(300, ["a", "b"]), rows(300, ["a", "b"], 1)
    before = download_custom({"train.csv": csv(few)}, split={"type": "hash"})
    split_of = {row["text"]: split for split in SPLITS for row in read(before, split)}
    assert {split: list(split_of.values()).count(split) > 10 for split in SPLITS} == dict.fromkeys(SPLITS, True)
    after = download_custom({"train.csv": csv(more + few)}, split={"type": "hash"})
    now = {row["text"]: split for split in SPLITS for row in read(after, split)}
    assert {text: now[text] for text in split_of} == split_of


def test_a_group_stays_together() -> None:
    examples = [(text, label, number % 37) for number, (text, label) in enumerate(rows(400, ["a", "b"]))]
    raw = download_custom(
        {"train.csv": csv(examples, "text,label,user")},
        split={"type": "group", "column": "user"},
        slice_columns=["user"],
    )
    users = {split: {row["user"] for row in read(raw, split)} for split in SPLITS}
    assert sum(map(len, users.values())) == 37
    assert 20 <= sizes(raw)[1] <= 60 and 20 <= sizes(raw)[2] <= 60


def test_pairs_that_share_a_text_stay_together_also_by_way_of_others() -> None:
    texts = [text for text, _ in rows(600, ["a"])]
    chains = [
        (texts[number], texts[number + 1] if number % 3 < 2 else texts[number - 1].upper(), "ab"[number % 2])
        for number in range(599)
    ]
    raw = download_custom(
        {"train.csv": csv(chains, "one,other,label")}, split={"type": "group"}, text_column_names=["one", "other"]
    )
    split_of = {row["idx"]: split for split in SPLITS for row in read(raw, split)}
    assert all(split_of[number] == split_of[number + 1] for number in range(0, 598, 3))
    assert min(sizes(raw)) > 20
    assert content(raw, "data_card")["leakage"][0]["texts"] == 0


def test_a_group_larger_than_its_split_goes_to_train() -> None:
    examples = [
        (text, label, "big" if number < 150 else number) for number, (text, label) in enumerate(rows(200, ["a", "b"]))
    ]
    raw = download_custom({"train.csv": csv(examples, "text,label,user")}, split={"type": "group", "column": "user"})
    assert sizes(raw) == (160, 20, 20)


@pytest.mark.parametrize(
    "time",
    [
        lambda number: f"2024-{1 + number // 28:02}-{1 + number % 28:02}",
        lambda number: f"{number}.5",
        lambda number: 9000 + number,
    ],
)
def test_by_time_the_latest_rows_are_test(time: Any) -> None:
    examples = [(text, label, time((7 * number) % 200)) for number, (text, label) in enumerate(rows(200, ["a", "b"]))]
    raw = download_custom({"train.csv": csv(examples, "text,label,when")}, split={"type": "datetime", "column": "when"})
    when = {split: {7 * number % 200 for number in indices} for split, indices in members(raw).items()}
    assert when == {"train": set(range(160)), "validation": set(range(160, 180)), "test": set(range(180, 200))}


def in_time(times: list[str]) -> list[int]:
    """The `idx` of rows with these times, by which they become train, validation and test rows."""
    made = [(text, label, time) for (text, label), time in zip(rows(len(times), ["a", "b"]), times, strict=True)]
    split = {"type": "datetime", "column": "when", "fractions": [0.5, 0.25, 0.25]}
    return list(
        chain.from_iterable(members(download_custom({"train.csv": csv(made, "text,label,when")}, split=split)).values())
    )


@pytest.mark.parametrize(
    "times",
    [
        ["2021", "2022-05-01", "2023", "2023-07-01", "2024", "2024-02-01", "2025", "2025-06-30"],
        ["20210105", "2022-05-01", "20230101", "20230701T1200", "2024", "20240201", "20250101", "2025-06-30"],
        ["2021", "20211231", "2022", "20220105", "2023", "20230105", "2024", "20240105"],
        ["1989", "1990", "1991", "2020", "2021", "2022", "2023", "2024"],
        ["998", "999", "1000", "2024", "9999", "10000", "1704412800", "1704412800.5"],  # not years among numbers
        ["-3", "0", "1", "7", "1899", "1e4", "20241345", "99999999"],  # there is no such date
        ["2020", "2021-01-01", "2021-01-01T06:00:00+05:00", "2021-01-01T02:00Z", "2022", "2023", "2024", "2025"],
    ],
)  # fmt: skip
def test_years_and_compact_dates_are_dates(times: list[str]) -> None:
    expected = list(range(8))
    assert sorted(in_time(times)[:4]) == expected[:4]
    reverse = in_time(times[::-1])
    assert sorted(reverse[:4]) == expected[4:], "whatever the order of the rows"
    assert sorted(reverse[6:]) == [0, 1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2024-01-05", "1704412800"),
        ("1704412800", "2024-01-05"),
        ("2024-01-05", "202401"),
        ("20240105", "1704412800"),
        ("20240105", "20241345"),
        ("2024-01-05", "17.5"),
    ],
)
@pytest.mark.parametrize("between", [0, 10])
def test_dates_and_numbers_in_one_column_are_an_error_that_names_both_rows(
    first: str, second: str, between: int
) -> None:
    with pytest.raises(UserError) as error:
        in_time([first, *["2024"] * between, second])
    message = str(error.value)
    assert all(part in message for part in ("line 2", f"line {3 + between}", f"'{first}'", f"'{second}'", "when"))
    assert "\n" not in message


def test_a_column_may_name_each_rows_split() -> None:
    names = ["train", "train", "dev", "Test"]
    examples = [(text, label, names[number % 4]) for number, (text, label) in enumerate(rows(80, ["a", "b", "b"]))]
    raw = download_custom({"train.csv": csv(examples, "text,label,part")}, split={"type": "fixed", "column": "part"})
    assert members(raw)["validation"] == list(range(2, 80, 4))
    assert sizes(raw) == (40, 20, 20)


def test_a_regression_is_split_at_random() -> None:
    assert sizes(download_custom({"train.csv": csv(rows(100, [number / 7 for number in range(60)]))})) == (80, 10, 10)


DATED = csv([(*row, "3/4/2024") for row in rows(40, ["a", "b"])], "text,label,when")
PLAIN = csv(rows(40, ["a", "b"]))
REFUSED: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "test for validation": (
        {"train.csv": PLAIN, "test.csv": PLAIN},
        {"type": "fixed"},
        r"data\.split: .*no validation.*data\.split\.type=stratify",
    ),
    "no share": (
        {"train.csv": PLAIN},
        {"fractions": [0.9, 0, 0.1]},
        r"data\.split: .*no validation.*data\.split\.fractions",
    ),
    "shares beyond 1": (
        {"train.csv": PLAIN},
        {"fractions": [0.8, 0.2, 0.2]},
        r"data\.split\.fractions must .*sum to 1, got \[0\.8, 0\.2, 0\.2\]",
    ),
    "two shares": (
        {"train.csv": PLAIN},
        {"fractions": [0.8, 0.2]},
        r"data\.split\.fractions must .*got \[0\.8, 0\.2\]",
    ),
    "no column of times": (
        {"train.csv": PLAIN},
        {"type": "datetime"},
        r"data\.split\.column must .*datetime.* got null",
    ),
    "a column for nothing": (
        {"train.csv": PLAIN},
        {"type": "random", "column": "when"},
        r'data\.split\.column must be null .*got "when"',
    ),
    "no such column": ({"train.csv": PLAIN}, {"type": "group", "column": "user"}, r"train\.csv has no column user"),
    "times of another form": (
        {"train.csv": DATED},
        {"type": "datetime", "column": "when"},
        r"train\.csv line 2: when is '3/4/2024'; .*2024-12-31",
    ),
    "no time at all": (
        {"train.csv": csv([(*row, "nan") for row in rows(40, ["a", "b"])], "text,label,when")},
        {"type": "datetime", "column": "when"},
        r"train\.csv line 2: when is 'nan'; .*2024-12-31",
    ),
    "no split's name": (
        {"train.csv": DATED},
        {"type": "fixed", "column": "when"},
        r"train\.csv line 2: when is '3/4/2024'; .*validation",
    ),
    "a missing value": (
        {"train.csv": DATED + "a,a,\n"},
        {"type": "group", "column": "when"},
        r"train\.csv line 42: when is ''; .*data\.split\.column",
    ),
    "one group": (
        {"train.csv": DATED},
        {"type": "group", "column": "when"},
        r"validation would have no rows.*data\.split\.fractions",
    ),
    "a split twice": (
        {"train.csv": csv([(*row, "dev") for row in rows(9, ["a", "b"])], "text,label,part"), "dev.csv": PLAIN},
        {"type": "fixed", "column": "part"},
        r"data\.split\.column: part .*validation.* file too; keep only one",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_split_that_cannot_be_made_is_refused(fault: str) -> None:
    files, split, message = REFUSED[fault]
    with pytest.raises(UserError, match=message) as error:
        download_custom(files, split=split)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
