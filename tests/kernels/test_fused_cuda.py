"""The CUDA launches of fused ops, run thread by thread on the host, against the torch references."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from dsv41c.compiler.kernels import catalog
from dsv41c.compiler.kernels.nvcc import parse_signature
from dsv41c.compiler.kernels.source import ROOT, Float, KernelSource, Scratch, Tensor
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.mega import mxfp8
from dsv41c.runtime.plan import expr

EMULATION = Path(__file__).parent / "emulation"
EPS, HC_EPS = 1e-20, 1e-6
BF16, F32 = torch.bfloat16, torch.float32


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fused")


def run(source: KernelSource, tensors: dict[int, torch.Tensor], scratch: torch.Tensor, rows: int, libraries: Path,
        skewed: bool = False) -> None:
    """One launch on the host; `tensors` by their index in the launch."""
    signature = parse_signature(source.path.read_text(encoding="utf-8"), source.file)
    bindings, symbols, values = dict(source.bindings), {"rows": rows}, []
    for _, name in signature.params:
        param = bindings[name]
        if isinstance(param, Tensor):
            values.append(ctypes.c_void_p(tensors[param.index].data_ptr()))
        elif isinstance(param, Scratch):
            values.append(ctypes.c_void_p(scratch.data_ptr() + expr.evaluate(param.offset, symbols)))
        elif isinstance(param, Float):
            values.append(ctypes.c_float(param.value))
        else:
            values.append(ctypes.c_int32(expr.evaluate(param.value, symbols)))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    grid = (ctypes.c_uint * 3)(*(expr.evaluate(e, symbols) for e in source.grid))
    emulate = ctypes.CDLL(str(library_of(source, signature.symbol, libraries))).emulate
    emulate(pointers, grid, ctypes.c_uint(source.block[0]), int(skewed))


def library_of(source: KernelSource, symbol: str, libraries: Path) -> Path:
    macros = [f"-D{name}={value}" for name, value in source.constants]
    library = libraries / ("_".join([symbol, *(m[2:].replace("=", "") for m in macros)]) + ".so")
    if not library.exists():
        subprocess.run(
            ["g++", "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-shared", "-fPIC",
             f"-I{ROOT / 'cuda'}", f"-I{EMULATION}", "-include", "fused_shim.h", f'-DKERNEL_FILE="{source.path}"',
             f"-DKERNEL_SYMBOL={symbol}", *macros, str(EMULATION / "emulate.cc"), "-o", str(library)], check=True)
    return library


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.full((torch.Size(shape).numel() * size,), 255, dtype=torch.uint8).view(dtype).view(shape)


def size_of(op: catalog.OpKernels, rows: int) -> int:
    return expr.evaluate(op.scratch_bytes, {"rows": rows})


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 33, 520])
def test_mhc_finish_sums_the_partials_and_normalises(rows: int, skewed: bool, libraries: Path) -> None:
    """Few rows take a block each, above 512 a thread each; both sum every split once."""
    hidden = 128
    op = catalog.mega_mhc(hidden, 20, EPS, HC_EPS)
    source = op.launches[1]
    splits = expr.evaluate(dict(source.bindings)["splits"].value, {"rows": rows})
    u, weight = normal(rows, hidden, seed=1).to(BF16), normal(hidden, seed=2).to(BF16)
    streams = normal(rows, 4, hidden, seed=3).to(BF16)
    fn, scale, base = normal(24, 4 * hidden, seed=4) * 0.1, torch.tensor([0.7, 1.1, 0.9]), normal(24, seed=5)
    z = streams.float().flatten(1)
    whole = torch.cat((z @ fn.T, (z * z).sum(-1, keepdim=True)), 1)
    share = torch.rand(splits, 1, 1, generator=torch.Generator().manual_seed(6))
    partials = (share / share.sum() * whole).contiguous()
    scratch = torch.cat([t.contiguous().view(-1).view(torch.uint8) for t in (u, partials)])
    assert scratch.numel() == size_of(op, rows)
    out = {10: poisoned(rows, 4, dtype=F32), 11: poisoned(rows, 4, dtype=F32), 12: poisoned(rows, 4, 4, dtype=F32),
           13: poisoned(rows, hidden, dtype=BF16), 14: poisoned(rows, hidden, dtype=torch.float8_e4m3fn),
           15: poisoned(rows, hidden // 32, dtype=torch.float8_e8m0fnu)}
    run(source, {6: scale, 7: base, 8: weight, **out}, scratch, rows, libraries, skewed)
    mixes = OPS["mhc_mix"].reference(streams, fn, scale, base, 20, EPS, HC_EPS)
    for ours, wanted in zip((out[10], out[11], out[12]), mixes, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=2e-5, atol=1e-6)
    x = OPS["rms_norm"].reference(u, weight, EPS)
    torch.testing.assert_close(out[13], x, rtol=2**-7, atol=0.0)
    for ours, wanted in zip((out[14], out[15]), mxfp8(out[13]), strict=True):
        assert torch.equal(ours.view(torch.uint8), wanted.view(torch.uint8))


@pytest.mark.parametrize("rows", [1, 7, 130])
@pytest.mark.parametrize(("experts", "topk"), [(16, 2), (128, 3), (384, 6)])
def test_gate_select_chooses_as_the_reference(experts: int, topk: int, rows: int, libraries: Path) -> None:
    """Equal keys (neighbouring experts are equal here) go to the lower id; a NaN row gets valid ids."""
    hidden = 128
    op = catalog.mega_gate(hidden, experts, topk, 1.5)
    source = op.launches[1]
    splits = expr.evaluate(dict(source.bindings)["splits"].value, {"rows": rows})
    weight = normal(experts // 2, hidden, seed=1).repeat_interleave(2, 0).to(BF16)
    bias, bias_vl = (normal(experts // 2, seed=s).repeat_interleave(2) * 0.1 for s in (2, 3))
    x = normal(rows, hidden).to(BF16)
    x[rows // 2] = float("nan") if rows > 1 else 1.0
    table = torch.zeros(rows, 8, dtype=torch.int32)
    table[::2, 7] = 2
    width = hidden // splits
    pieces = [x.float()[:, i * width : (i + 1) * width] @ weight.float()[:, i * width : (i + 1) * width].T
              for i in range(splits)]
    scratch = torch.stack(pieces).contiguous()
    assert scratch.numel() * 4 == size_of(op, rows)
    expert, chosen = poisoned(rows, topk, dtype=torch.int32), poisoned(rows, topk, dtype=F32)
    run(source, {2: bias, 3: bias_vl, 4: table, 5: expert, 6: chosen}, scratch, rows, libraries)
    wanted = OPS["mega_gate"].reference(x, weight, bias, bias_vl, table, topk, 1.5)
    assert torch.equal(expert, wanted[0])
    torch.testing.assert_close(chosen, wanted[1], rtol=1e-5, atol=0.0, equal_nan=True)


@pytest.mark.parametrize(("width", "rope", "ring"), [(512, 64, 134), (64, 32, 5), (128, 32, 38)])
def test_norm_rope_store_writes_the_references_bytes(width: int, rope: int, ring: int, libraries: Path) -> None:
    """Sums of small integers are exact in any order, so the bytes are too. NaN pad rows write nothing."""
    groups = [(0, 3, 2), (1, 30, 150), (2, 0, 3)]
    table: list[list[int]] = []
    for slot, base, count in groups:
        first = len(table)
        table += [[slot, base + i, base, first, count, 0, 0, 0] for i in range(count)]
    table += [[3, 0, 0, len(table) + i, 1, 0, 0, 5] for i in range(3)]
    rows = torch.tensor(table, dtype=torch.int32)
    kv = torch.randint(-8, 9, (len(table), width), generator=torch.Generator().manual_seed(1)).to(BF16)
    kv[-3:] = float("nan")
    angle = torch.rand(256, rope // 2, generator=torch.Generator().manual_seed(2))
    angles, weight = torch.stack((angle.cos(), angle.sin()), -1), normal(width).to(BF16)
    ours, wanted = (torch.full((4, ring, width + width // 32), 171, dtype=torch.uint8) for _ in range(2))
    source = catalog.norm_rope_store(width, rope, ring, EPS).launches[0]
    run(source, {0: kv, 1: weight, 2: rows, 3: angles, 4: ours}, torch.empty(0), len(table), libraries)
    OPS["norm_rope_store"].reference(kv, weight, rows, angles, wanted, EPS)
    assert torch.equal(ours, wanted)
