"""mega_attention, run thread by thread on the host, against the composition that it replaces."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsv41c.compiler.kernels import catalog
from dsv41c.compiler.kernels.configurations import ATTENTION_SPLITS
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.runtime.plan import expr
from dsv41c.tools.bench.attention_case import AttentionCase, attention_case
from tests.kernels.test_fused_cuda import poisoned, run

ERROR = 3e-3  # relative L2: weights are rounded to bfloat16


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attention")


def emulated(case: AttentionCase, libraries: Path, is_invariant: bool,
             skewed: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Result and window."""
    op = case.kernels("sm_90a", is_invariant)
    window = case.tensors[2].clone()
    out = poisoned(case.rows, case.tensors[0][0].numel(), dtype=torch.bfloat16)
    tensors = dict(enumerate((*case.tensors[:2], window, *case.tensors[3:], out)))
    scratch = poisoned(expr.evaluate(op.scratch_bytes, {"rows": case.rows}), dtype=torch.uint8)
    for launch in op.launches:
        run(launch, tensors, scratch, case.rows, libraries, skewed)
    return out, window


@pytest.mark.parametrize("is_invariant", [True, False])
@pytest.mark.parametrize(("heads", "selected"), [(64, 100), (16, 64), (64, 0), (5, 0)])
def test_result_is_near_the_reference_and_the_window_equal(heads: int, selected: int, is_invariant: bool,
                                                           libraries: Path) -> None:
    case = attention_case(heads, selected, cast=False)
    out, window = emulated(case, libraries, is_invariant)
    wanted, behind = case.reference()
    live = case.live()
    assert torch.equal(window, behind)
    a, b = out[live].double(), wanted[live].double()
    assert float((a - b).norm() / b.norm()) < ERROR
    assert not a[1].any() and not b[1].any()  # no keys: zeros
    rest = torch.arange(len(a)) != 1
    assert float(((a - b).norm(dim=1) / b.norm(dim=1))[rest].max()) < ERROR


@pytest.mark.parametrize("is_invariant", [True, False])
def test_the_cast_is_that_of_the_result(is_invariant: bool, libraries: Path) -> None:
    plain, cast = (emulated(attention_case(16, 64, c), libraries, is_invariant)[0] for c in (False, True))
    live = attention_case(16, 64, False).live()
    assert torch.equal(cast[live], OPS["quantize_fp8"].reference(plain[live]))


def test_warps_that_run_ahead_change_nothing(libraries: Path) -> None:
    """Barriers order everything that is shared; two rows keep it short."""
    case = attention_case(16, 64, True, ((1, 130, 1), (0, 4, 1)))
    even, skewed = (emulated(case, libraries, True, s) for s in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(even, skewed, strict=True))


def test_all_codes_and_scales_of_state_are_read_exactly(libraries: Path) -> None:
    """One key alone, without a sink: the result is that key, whatever its codes; NaN scales give NaN."""
    case = attention_case(5, 0, False, ((1, 0, 1), (0, 3, 1), (2, 7, 1)))
    *_, sink, rows, table = case.tensors
    window, (q, key) = case.tensors[2].clone(), case.tensors[:2]
    rows[:, 2] = rows[:, 1] + 1  # the key of the row's position lies in the ring
    rows[:, 6] = rows[:, 1]
    for i, row in enumerate(rows):
        codes = (torch.arange(512) + 37 * i) % 256
        codes[(codes & 127) == 127] = 1
        window[row[0], row[1] % 134, :512] = codes.byte()
        window[row[0], row[1] % 134, 512:] = torch.tensor([105 + i, 127, 130 + i, 148]).repeat(4).byte()
    straight = torch.ones_like(table) * torch.tensor([1.0, 0.0])
    tensors = (torch.zeros_like(q), key, window, torch.full_like(sink, -1e30), rows, straight)
    case = AttentionCase(case.op, tensors, 1, False)
    out, _ = emulated(case, libraries, True)
    wanted, _ = case.reference()
    assert torch.equal(out, wanted)
    window[rows[0, 0], rows[0, 1] % 134, 512] = 255
    assert emulated(case, libraries, True)[0][0].view(5, 512)[:, :32].isnan().all()


def test_configurations_cover_the_rows() -> None:
    """Parts of the ladder as data are the parts of the launch; scratch holds them at every number of rows."""
    case = attention_case(64, 512, True)
    splits = ATTENTION_SPLITS["sm_90a", "window and entries"]
    op = catalog.mega_attention(case.op, case.shape(), "sm_90a", False)
    previous = 0
    for rows in range(1, 300):
        parts = next((p for most, p in splits.ladder if rows <= most), 1)
        x, y, _ = (expr.evaluate(e, {"rows": rows}) for e in op.launches[0].grid)
        assert (x, y) == (rows, parts)
        assert expr.evaluate(op.launches[1].grid[1], {"rows": rows}) == (1 if parts == 1 else 65)
        size = expr.evaluate(op.scratch_bytes, {"rows": rows})
        assert size >= previous and size >= (rows * parts * 64 * (512 * 4 + 8) if parts > 1 else 0)
        previous = size
