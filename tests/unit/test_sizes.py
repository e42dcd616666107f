"""Sizes: what people write and what they read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exla_opt.sizes import format_size, parse_size, round_up


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500MB", 500 * 10**6),
        ("500mb", 500 * 10**6),
        ("1.5GB", 15 * 10**8),
        ("512MiB", 512 * 2**20),
        ("512mib", 512 * 2**20),
        ("5e8", 5 * 10**8),
        ("1e-3GB", 10**6),
        ("64KB", 64_000),
        ("64 KiB", 65_536),
        (" 7 ", 7),
        ("7B", 7),
        (".5kb", 500),
        ("2.GB", 2 * 10**9),
        ("1.7B", 1),
        ("3TB", 3 * 10**12),
        ("1PiB", 2**50),
    ],
)
def test_what_people_write(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not a size"),
        ("GB", "is not a size"),
        ("-1GB", "is not a size"),
        ("1,5GB", "is not a size"),
        ("nan", "is not a size"),
        ("inf", "is not a size"),
        ("٣MB", "is not a size"),
        ("500M", "did you mean 500MB or 500MiB?"),
        ("1.5g", "did you mean 1.5GB or 1.5GiB?"),
        ("500MBs", "did you mean 500MB or 500MiB?"),
        ("5 parsecs", "did you mean 5PB or 5PiB?"),
        ("5 apples", "use KB, MB, GB"),
        ("0", "less than one byte"),
        ("0.4B", "less than one byte"),
        ("1e99", "64-bit"),
        ("1e999999999", "is not a size"),
        ("10000PB", "64-bit"),
    ],
)
def test_what_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0B"), (1, "1B"), (999, "999B"), (1000, "1KB"), (999_499, "999KB"), (999_500, "1MB"), (1_024_000, "1.02MB"),
     (15 * 10**8, "1.5GB"), (10**15, "1PB"), (5 * 10**18, "5000PB")],
)  # fmt: skip
def test_what_people_read(count: int, expected: str) -> None:
    assert format_size(count) == expected


@given(st.integers(min_value=1, max_value=2**63 - 1))
def test_formatting_keeps_three_digits(count: int) -> None:
    assert abs(parse_size(format_size(count)) - count) <= count * 0.005 + 1


@given(st.integers(min_value=1, max_value=10**6), st.sampled_from(["KB", "MB", "GB", "KiB", "MiB", "GiB", ""]))
def test_units_scale_and_ignore_case(count: int, unit: str) -> None:
    size = parse_size(f"{count}{unit}")
    assert size == parse_size(f"{count} {unit.lower()}") == count * parse_size(f"1{unit}")


@given(st.integers(0, 10**17))
def test_rounding_up_gives_what_can_be_told(count: int) -> None:
    rounded = round_up(count)
    assert count <= rounded <= count * 1.01 + 1
    assert not rounded or parse_size(format_size(rounded)) == rounded
