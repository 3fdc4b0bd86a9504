"""The doors that bytes come in by, for a moment each: `benchmarks/fuzz.py` goes on for as long as one likes."""

from __future__ import annotations

import fuzz
import pytest


@pytest.mark.parametrize("door", fuzz.DOORS)
def test_what_is_valid_is_let_in_and_what_once_broke_it_breaks_it_no_more(door: str) -> None:
    enter, whole = fuzz.DOORS[door]
    assert all(enter(value) for value in whole)
    for value in fuzz.corpus(door):
        with fuzz.in_time():
            enter(value)


@pytest.mark.parametrize("door", fuzz.DOORS)
def test_nothing_breaks_a_door(door: str) -> None:
    tally = fuzz.Tally()
    fuzz.shaped(door, 1, 60, tally)
    fuzz.flurry(door, 2, 1500, tally)
    assert 0 < tally.let_in < tally.inputs


def test_a_door_that_breaks_is_told_and_what_broke_it_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    def enter(value: bytes) -> bool:
        if b"9" in value:
            raise KeyError("nine")
        return True

    monkeypatch.setitem(fuzz.DOORS, "record", (enter, fuzz.DOORS["record"][1]))
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path)
    with pytest.raises(KeyError, match="nine"):
        fuzz.flurry("record", 1, 1000, fuzz.Tally())
    (kept,) = (fuzz.CORPUS / "record").iterdir()
    assert b"9" in kept.read_bytes()
