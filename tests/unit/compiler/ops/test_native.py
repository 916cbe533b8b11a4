"""Tensors that the native kernels' interface cannot describe are refused before they are bound."""

from __future__ import annotations

import pytest
import torch

from dsv41c.compiler.ops import native
from dsv41c.compiler.ops.native import run_native
from dsv41c.runtime.plan.errors import Dsv41cError


@pytest.mark.parametrize("tensor", [
    torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2, dtype=torch.complex64), torch.zeros(2, dtype=torch.int16),
    torch.zeros([1] * 7),
])
def test_tensor_without_a_description_is_refused(tensor: torch.Tensor) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0302") as failure:
        run_native("swiglu", {"limit": {"f": "0x1p+0"}, "dtype": {"dtype": "float32"}}, [tensor] * 3, 0)
    assert failure.value.found == f"{tensor.dtype} {list(tensor.shape)}"


def test_library_of_another_interface_is_refused() -> None:
    native.check_abi(native.PROVIDER_ABI)
    with pytest.raises(Dsv41cError, match="DSV41C-E0303"):
        native.check_abi(native.PROVIDER_ABI + 1)
