"""Ladders by rule: the rungs of each kind of method up to its bound, and how too many of them are thinned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from dsv41c.runtime.plan.errors import Dsv41cError

SMALL = (1, 2, 3)  # rungs of every ladder: the sizes that one or two users make
DECODE_RUNGS = (4, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
PREFILL_RUNGS = (4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
SUFFIX_PROMPTS = (1, 2, 3, 4, 6, 8, 12, 16)  # of one step
Rungs = tuple[int, ...]


def decode_rungs(bound: int) -> Rungs:
    """Half-octave rungs up to the bound, and 10: without it 9 and 10 rows pad busy steps of 16 slots most."""
    return covering({*DECODE_RUNGS, *_half_octaves(DECODE_RUNGS[-1], bound)}, bound)


def prefill_rungs(bound: int) -> Rungs:
    """Octaves below 512, where few steps lie, half-octaves from there up to the bound, at most to 8,192: larger steps
    are bound by arithmetic, not by their launches, and would need the memory of all their rows at once."""
    return covering(PREFILL_RUNGS, min(bound, PREFILL_RUNGS[-1]))


def suffix_rungs(bound: int, keep: int | None, mixed: int) -> Rungs:
    """Rungs of a method that is split above its top. Without `keep` those of prefill, at most 8,192. Else those of up
    to `mixed` decodes, since most steps of a prompt keep none of its rows; octaves below `keep`, for what a chunk cuts
    off; the ends of one or several prompts with all the decodes, and of one with half of them."""
    if keep is None:
        return covering(PREFILL_RUNGS, min(bound, PREFILL_RUNGS[-1]))
    within = {r for r in PREFILL_RUNGS if mixed < r < keep}
    ends = {keep + mixed // 2, *(keep * prompts + mixed for prompts in SUFFIX_PROMPTS)}
    return covering({*decode_rungs(max(mixed, 1)), *within, *ends}, min(bound, max(ends)))


def power_rungs(bound: int, turn: int, step: int) -> Rungs:
    """Powers of two up to `turn`, then every `step`."""
    powers = {1 << exponent for exponent in range(turn.bit_length()) if 1 << exponent <= turn}
    return covering({*powers, *range(max(powers) + step, bound, step)}, bound)


def step_rungs(bound: int, step: int) -> Rungs:
    """The multiples of `step`."""
    return covering(range(step, bound, step), bound)


def covering(rungs: Iterable[int], bound: int) -> Rungs:
    """The rungs below the bound, the small ones and the bound itself, ascending. E0402 when there is no row."""
    if bound < 1:
        raise Dsv41cError("DSV41C-E0402", "bucket ladder", found=f"largest bucket {bound}", needed="at least 1",
                          do="raise the bound of the method")
    return tuple(sorted({r for r in {*SMALL, *rungs} if r < bound} | {bound}))


def fewest(rungs: Rungs) -> int:
    """How many rungs thinning leaves at least."""
    return len(_kept(rungs))


def thin(ladders: Mapping[str, Rungs], most: int) -> dict[str, Rungs]:
    """Ladders with at most `most` rungs in all. The rung goes whose absence pads its steps least, relative to what
    they launch then; equal ones go from the largest ladder. Small rungs and tops stay. E0402 when they are too many."""
    thinned = dict(ladders)
    least = sum(map(fewest, ladders.values()))
    if least > most:
        raise Dsv41cError("DSV41C-E0402", "bucket ladders", found=f"at most {most} graphs",
                          needed=f"at least {least}: sizes 1, 2, 3 and the top of each method",
                          do=f"allow {least} graphs or more")
    while sum(map(len, thinned.values())) > most:
        name, rung = min(((name, rung) for name, rungs in thinned.items() for rung in set(rungs) - _kept(rungs)),
                         key=lambda entry: _loss(thinned[entry[0]], entry[1], entry[0]))
        thinned[name] = tuple(r for r in thinned[name] if r != rung)
    return thinned


def _half_octaves(after: int, bound: int) -> set[int]:
    rungs = set()
    rung = after
    while rung < bound:
        rungs |= {rung + rung // 2, rung * 2}
        rung *= 2
    return rungs


def _kept(rungs: Rungs) -> set[int]:
    return {*rungs} & {*SMALL} | {rungs[-1]}


def _loss(rungs: Rungs, rung: int, name: str) -> tuple[Fraction, int, int, str]:
    """Pad share of the worst step that then lands on the next rung."""
    at = rungs.index(rung)
    below, above = rungs[at - 1] if at else 0, rungs[at + 1]
    return Fraction(above - below - 1, above), -len(rungs), -rung, name
