"""Splits made from the train file are exact and deterministic, and test never replaces validation."""

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from custom_files import csv, download_custom, examples, load_files, read_split, rows

from pipeline.core.data_card import read_data_card
from pipeline.core.messages import UserError
from pipeline.sources.corpus import Corpus

pytestmark = pytest.mark.usefixtures("work_in_tmp_path")

SPLITS = ("train", "validation", "test")


def indices_by_split(corpus: Corpus) -> dict[str, list[int]]:
    return {split: table["idx"].tolist() for split, table in corpus.splits.items()}


def sizes(corpus: Corpus) -> tuple[int, ...]:
    return tuple(map(len, corpus.splits.values()))


@pytest.mark.parametrize("split_type", ["random", "stratify"])
def test_split_sizes_are_exact_and_the_seed_selects_the_rows(split_type: str) -> None:
    files = {"train.csv": csv(rows(200, ["a", "b", "b", "b"]))}
    first = indices_by_split(load_files(files, split={"type": split_type}))
    assert [len(indices) for indices in first.values()] == [160, 20, 20]
    assert sorted(chain.from_iterable(first.values())) == list(range(200))
    assert indices_by_split(load_files(files, split={"type": split_type})) == first
    assert indices_by_split(load_files(files, split={"type": split_type, "seed": 7})) != first


def test_stratify_gives_each_class_its_proportion_in_each_split() -> None:
    corpus = load_files({"train.csv": csv(rows(210, ["a", "b", "b", "b", "c", "c", "c"]))})
    for split, fraction in zip(SPLITS, (0.8, 0.1, 0.1), strict=True):
        counts = Counter(corpus.splits[split]["label"])
        assert all(abs(counts[label] - fraction * size) <= 1 for label, size in ((0, 30), (1, 90), (2, 90)))


def count_labels(corpus: Corpus, split: str) -> Counter[str]:
    return Counter(corpus.task.labels[label] for label in corpus.splits[split]["label"])


RARE = ["one", *2 * ["two"], *3 * ["three"], *4 * ["four"]]


@pytest.mark.parametrize("fractions", [[0.8, 0.1, 0.1], [0.2, 0.4, 0.4], [0.6, 0.4, 0]])
@pytest.mark.parametrize("column", [None, "source"])
def test_stratify_keeps_rows_of_each_rare_class_in_train(fractions: list[float], column: str | None) -> None:
    plain = [*rows(90, ["a", "b"]), *((f"text {number}", label) for number, label in enumerate(RARE))]
    table = csv([(*row, "xy"[number % 2]) for number, row in enumerate(plain)], "text,label,source")
    for seed in range(3):
        split = {"seed": seed, "fractions": fractions, "column": column}
        counts = count_labels(load_files({"train.csv": table}, split=split), "train")
        assert all(counts[label] >= least for label, least in (("one", 1), ("two", 1), ("three", 2), ("four", 2)))


def test_stratify_moves_only_rare_classes_and_warns_about_classes_that_cannot_be_scored() -> None:
    common = rows(200, ["a", "b"])
    files = {"train.csv": csv([*common, ("a lone row", "rare")])}
    for seed in range(5):
        corpus = load_files(files, split={"seed": seed})
        assert count_labels(corpus, "train")["rare"] == 1
        for split, fraction in zip(SPLITS, (0.8, 0.1, 0.1), strict=True):
            assert all(abs(count_labels(corpus, split)[label] - fraction * 100) <= 1 for label in "ab")
    warnings = read_data_card(download_custom(files)).warnings
    for split in ("validation", "test"):
        assert f"{split} has no rows for 1 of 3 labels (33.3%), which cannot be scored there: 'rare'" in warnings


def test_stratify_can_use_a_column_other_than_the_label() -> None:
    table = [(text, label, "xy"[number >= 100]) for number, (text, label) in enumerate(rows(200, ["a", "b"]))]
    files = {"train.csv": csv(table, "text,label,source")}
    corpus = load_files(files, split={"column": "source"}, slice_columns=["source"])
    assert Counter(corpus.splits["test"]["source"]) == {"x": 10, "y": 10}


@pytest.mark.parametrize(
    ("file_rows", "fractions", "expected"),
    [
        ({}, [0.5, 0.25, 0.25], (100, 50, 50)),
        ({}, [0.9, 0.1, 0], (180, 20)),
        ({"dev": 10}, [0.8, 0.1, 0.1], (178, 10, 22)),
        ({"test": 10}, [0.8, 0.1, 0.1], (178, 22, 10)),
        ({"dev": 10, "test": 12}, [0.8, 0.1, 0.1], (200, 10, 12)),
        ({"dev": 10}, [0.8, 0.2, 0], (200, 10)),
    ],
)
def test_only_splits_without_a_file_are_created(
    file_rows: dict[str, int], fractions: list[float], expected: tuple[int, ...]
) -> None:
    files = {f"{name}.csv": csv(rows(size, ["a", "b"], 1)) for name, size in file_rows.items()}
    corpus = load_files({"train.csv": csv(rows(200, ["a", "b"])), **files}, split={"fractions": fractions})
    assert sizes(corpus) == expected
    assert corpus.task.splits == list(corpus.splits)


def test_a_hash_split_keeps_each_row_in_its_split_when_rows_are_added() -> None:
    few, more = rows(300, ["a", "b"]), rows(300, ["a", "b"], 1)

    def split_by_text(table: list[tuple[str, Any]]) -> dict[str, str]:
        corpus = load_files({"train.csv": csv(table)}, split={"type": "hash"})
        return {row["text"]: split for split in SPLITS for row in examples(corpus, split)}

    before, after = split_by_text(few), split_by_text(more + few)
    assert all(count > 10 for count in Counter(before.values()).values())
    assert {text: after[text] for text in before} == before


def test_the_rows_of_a_group_stay_together() -> None:
    table = [(text, label, number % 37) for number, (text, label) in enumerate(rows(400, ["a", "b"]))]
    files = {"train.csv": csv(table, "text,label,user")}
    corpus = load_files(files, split={"type": "group", "column": "user"}, slice_columns=["user"])
    assert sum(corpus.splits[split]["user"].nunique() for split in SPLITS) == 37
    assert 20 <= sizes(corpus)[1] <= 60 and 20 <= sizes(corpus)[2] <= 60
    train = corpus.splits["train"]
    assert (train.groupby("sample_group")["user"].nunique() == 1).all(), "a sample takes the rows of a user together"


def test_the_rows_of_a_sample_group_share_a_text_or_a_value_of_the_column() -> None:
    table = [(f"text {number}", "ab"[number % 2], number // 2) for number in range(80)]
    table += [("Text 5!", "a", "new"), ("another text", "b", "new"), ("text 40", "a", 41)]
    raw = download_custom(
        {"train.csv": csv(table, "text,label,user"), "dev.csv": csv(rows(9, ["a", "b"]))},
        split={"type": "group", "column": "user", "fractions": [0.9, 0.1, 0]},
    )
    groups = {row["idx"]: row["sample_group"] for row in read_split(raw, "train")}
    for connected in ({4, 5, 80, 81}, {40, 41, 82}, {2, 3}):
        [group] = {groups[idx] for idx in connected}
        assert {idx for idx in groups if groups[idx] == group} == connected
    assert len(set(groups.values())) == 40


def test_equal_whole_numbers_are_the_same_group_and_case_and_outer_spaces_do_not_matter() -> None:
    table = rows(400, ["a", "b"])

    def load(group: Callable[[int], str]) -> Corpus:
        content = csv([(*row, group(number)) for number, row in enumerate(table)], "text,label,user")
        return load_files({"train.csv": content}, split={"type": "group", "column": "user"})

    expected = indices_by_split(load(lambda number: str(number % 37)))
    assert indices_by_split(load(lambda number: f"{number % 37}{'.0' if number > 200 else ''}")) == expected
    assert indices_by_split(load(lambda number: f"{number % 37}{' ' * (number % 3)}")) == expected
    codes = load(lambda number: f"0{number % 37}{'.0' if number > 200 else ''}")
    assert codes.splits["train"]["sample_group"].nunique() > 37, "codes such as 07 are names"
    expected = indices_by_split(load(lambda number: f"bob {number % 37}"))
    assert indices_by_split(load(lambda number: f"{['Bob', 'bob'][number % 2]} {number % 37}")) == expected


def test_pairs_that_are_linked_by_shared_texts_stay_together() -> None:
    texts = [text for text, _ in rows(600, ["a"])]
    chains = [
        (texts[number], texts[number + 1] if number % 3 < 2 else texts[number - 1].upper(), "ab"[number % 2])
        for number in range(599)
    ]
    files = {"train.csv": csv(chains, "one,other,label")}
    corpus = load_files(files, split={"type": "group"}, text_column_names=["one", "other"])
    split_by_row = {row: split for split, indices in indices_by_split(corpus).items() for row in indices}
    assert all(split_by_row[number] == split_by_row[number + 1] for number in range(0, 598, 3))
    assert min(sizes(corpus)) > 20
    train, validation, test = (
        {row[name].lower() for row in examples(corpus, split) for name in ("one", "other")} for split in SPLITS
    )
    assert train.isdisjoint(validation | test) and validation.isdisjoint(test)


def test_a_group_larger_than_its_split_goes_to_train() -> None:
    table = [
        (text, label, "big" if number < 150 else number) for number, (text, label) in enumerate(rows(200, ["a", "b"]))
    ]
    files = {"train.csv": csv(table, "text,label,user")}
    assert sizes(load_files(files, split={"type": "group", "column": "user"})) == (160, 20, 20)


def test_a_datetime_split_puts_the_latest_rows_into_test() -> None:
    table = [(text, label, f"{7 * number % 200}.5") for number, (text, label) in enumerate(rows(200, ["a", "b"]))]
    files = {"train.csv": csv(table, "text,label,when")}
    corpus = load_files(files, split={"type": "datetime", "column": "when"})
    times = {split: {7 * number % 200 for number in indices} for split, indices in indices_by_split(corpus).items()}
    assert times == {"train": set(range(160)), "validation": set(range(160, 180)), "test": set(range(180, 200))}


def split_by_time(times: list[str]) -> list[int]:
    """Split rows by their times. Returns the `idx` of the train rows, then of the validation and test rows."""
    table = [(text, label, time) for (text, label), time in zip(rows(len(times), ["a", "b"]), times, strict=True)]
    split = {"type": "datetime", "column": "when", "fractions": [0.5, 0.25, 0.25]}
    return list(
        chain(*indices_by_split(load_files({"train.csv": csv(table, "text,label,when")}, split=split)).values())
    )


@pytest.mark.parametrize(
    "times",
    [
        ["2021", "2022-05-01", "2023", "2023-07-01", "2024", "2024-02-01", "2025", "2025-06-30"],
        ["20210105", "2022-05-01", "20230101", "20230701T1200", "2024", "20240201", "20250101", "2025-06-30"],
        ["2021", "20211231", "2022", "20220105", "2023", "20230105", "2024", "20240105"],
        ["1989", "1990", "1991", "2020", "2021", "2022", "2023", "2024"],
        ["998", "999", "1000", "2024", "9999", "10000", "1704412800", "1704412800.5"],  # numbers, not years
        ["-3", "0", "1", "7", "1899", "1e4", "20241345", "99999999"],  # 20241345 is not a date
        ["202212", "202301", "202302", "202303", "202304", "202310", "202311", "202312"],
        ["122019", "122020", "122021", "122022", "122023", "122024", "122025", "132026"],  # numbers, not months
        ["-30", "-21", "-14", "-7", "-3", "-2", "-1", "0"],  # pandas reads -1 as a year.
        ["2023-11", "2023-12-01", "2023-12-02T10", "2023-12-03 10:00", "2024-01", "2024-02", "2024-03", "2024-04"],
        ["1.19", "1.2", "1.5", "3.2023", "10.25", "11.2023", "12.2023", "12.9"],
        ["2020", "2021-01-01", "2021-01-01T06:00:00+05:00", "2021-01-01T02:00Z", "2022", "2023", "2024", "2025"],
    ],
)  # fmt: skip
def test_dates_years_and_numbers_are_sorted_by_time(times: list[str]) -> None:
    expected = list(range(8))
    assert sorted(split_by_time(times)[:4]) == expected[:4]
    reversed_order = split_by_time(times[::-1])
    assert sorted(reversed_order[:4]) == expected[4:], "the order of the rows does not matter"
    assert sorted(reversed_order[6:]) == [0, 1]


@pytest.mark.parametrize(
    ("date", "number"),
    [
        ("2024-01-05", "1704412800"),
        ("2024-01-05", "202401"),
        ("20240105", "1704412800"),
        ("20240105", "20241345"),
        ("2024-01-05", "17.5"),
        ("2024-01-05", "-1"),
        ("2024-01-05", "2024.5"),
    ],
)
def test_a_number_among_dates_is_an_error(date: str, number: str) -> None:
    with pytest.raises(UserError, match=rf"line 13: \"when\" is '{number}'\. .*2024-12-31.*numbers"):
        split_by_time([date, *["2024"] * 10, number])
    with pytest.raises(UserError, match=rf"line 2: \"when\" is '{number}'"):
        split_by_time([number, *["2024"] * 10, date])


@pytest.mark.parametrize(
    "times",
    [
        ["31122023", "1012024", "02012024"],
        ["12312023", "01012024", "01022024"],
        ["12.2023", "01.2024", "2.2024"],
        ["9.2023", "1.2024", "2.2024"],
        ["122023", "12024", "022024"],
    ],
)
def test_numbers_that_are_dates_but_do_not_sort_by_time_are_an_error(times: list[str]) -> None:
    with pytest.raises(UserError, match=rf"line 2: \"when\" is '{times[0]}', .*2023-12-31"):
        split_by_time(times * 4)


def test_a_column_can_name_the_split_of_each_row() -> None:
    names = ["train", "train", "dev", "Test"]
    table = [(text, label, names[number % 4]) for number, (text, label) in enumerate(rows(80, ["a", "b", "b"]))]
    files = {"train.csv": csv(table, "text,label,part")}
    corpus = load_files(files, split={"type": "fixed", "column": "part"})
    assert indices_by_split(corpus)["validation"] == list(range(2, 80, 4))
    assert sizes(corpus) == (40, 20, 20)


def test_data_for_a_regression_are_split_at_random() -> None:
    assert sizes(load_files({"train.csv": csv(rows(100, [number / 7 for number in range(60)]))})) == (80, 10, 10)


DATED = csv([(*row, "3/4/2024") for row in rows(40, ["a", "b"])], "text,label,when")
PLAIN = csv(rows(40, ["a", "b"]))
REJECTED: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "a test file but no validation": (
        {"train.csv": PLAIN, "test.csv": PLAIN},
        {"type": "fixed"},
        r"data\.split: .*no validation.*data\.split\.type=stratify",
    ),
    "no validation fraction": (
        {"train.csv": PLAIN},
        {"fractions": [0.9, 0, 0.1]},
        r"data\.split: .*no validation.*data\.split\.fractions",
    ),
    "fractions with a sum above 1": (
        {"train.csv": PLAIN},
        {"fractions": [0.8, 0.2, 0.2]},
        r"data\.split\.fractions must .*sum to 1, .*got \[0\.8, 0\.2, 0\.2\]",
    ),
    "only two fractions": (
        {"train.csv": PLAIN},
        {"fractions": [0.8, 0.2]},
        r"data\.split\.fractions must .*got \[0\.8, 0\.2\]",
    ),
    "no datetime column": (
        {"train.csv": PLAIN},
        {"type": "datetime"},
        r"data\.split\.column must .*datetime.* got null",
    ),
    "an unused column": (
        {"train.csv": PLAIN},
        {"type": "random", "column": "when"},
        r'data\.split\.column must be null .*got "when"',
    ),
    "an unknown column": (
        {"train.csv": PLAIN},
        {"type": "group", "column": "user"},
        r'train\.csv has no column "user"',
    ),
    "an unsupported time format": (
        {"train.csv": DATED},
        {"type": "datetime", "column": "when"},
        r"train\.csv line 2: \"when\" is '3/4/2024'\. .*2024-12-31",
    ),
    "nan as a time": (
        {"train.csv": csv([(*row, "nan") for row in rows(40, ["a", "b"])], "text,label,when")},
        {"type": "datetime", "column": "when"},
        r"train\.csv line 2: \"when\" is 'nan'\. .*2024-12-31",
    ),
    "a word as a time": (
        {"train.csv": csv([(*row, "now") for row in rows(40, ["a", "b"])], "text,label,when")},
        {"type": "datetime", "column": "when"},
        r"train\.csv line 2: \"when\" is 'now'\. .*2024-12-31",
    ),
    "an unknown split name": (
        {"train.csv": DATED},
        {"type": "fixed", "column": "when"},
        r"train\.csv line 2: \"when\" is '3/4/2024'\. .*validation",
    ),
    "a missing value": (
        {"train.csv": DATED + "a,a,\n"},
        {"type": "group", "column": "when"},
        r"train\.csv line 42: \"when\" is ''\. .*data\.split\.column",
    ),
    "a single group": (
        {"train.csv": DATED},
        {"type": "group", "column": "when"},
        r"validation would have no rows.*data\.split\.fractions",
    ),
    "a split in a column and in a file": (
        {"train.csv": csv([(*row, "dev") for row in rows(9, ["a", "b"])], "text,label,part"), "dev.csv": PLAIN},
        {"type": "fixed", "column": "part"},
        r"data\.split\.column: .part. .*validation also has a file\. Keep only one",
    ),
}


@pytest.mark.parametrize("fault", REJECTED)
def test_an_impossible_split_is_rejected_in_one_line(fault: str) -> None:
    files, split, message = REJECTED[fault]
    with pytest.raises(UserError, match=message):
        download_custom(files, split=split)
