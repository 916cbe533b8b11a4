"""Loads an artifact: a thin object over the C++ executor, which does all the work."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from dsv41c.runtime.aten import aten_provider
from dsv41c.runtime.binding import Error, LoadOptions, Record, StepInputs, Tensor, interface
from dsv41c.runtime.engine import Engine
from dsv41c.runtime.generation import Answer, Tokens
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.sampling_params import SamplingParams

Array = npt.NDArray[Any]
ERROR_BYTES = 16384
KEPT_RECORDS = 65_536
_CUDA_MODES = ("graphs", "eager")  # by dsv41c_load_options.cuda_mode
# By dsv41c_dtype; dtypes that NumPy lacks appear as unsigned integers of their width.
_NUMPY_DTYPES = (np.float32, np.uint16, np.uint8, np.uint8, np.int8, np.uint8, np.int32, np.int64, np.float64,
                 np.bool_)


@dataclass(frozen=True)
class DecisionRecord:
    """What one method run of one step did."""

    method: str
    bucket: int
    rows: int
    pad_rows: int
    eager: bool
    reason: str
    us: float

    @property
    def mode(self) -> str:
        return "eager" if self.eager else "bucketed"


def load(
    path: str | os.PathLike[str], verify: Literal["header", "full"] = "header", *, poison: int = 0, device: int = 0,
    cuda_mode: Literal["graphs", "eager"] = "graphs", cuda_driver: str | os.PathLike[str] | None = None,
    weights: str | os.PathLike[str] | None = None, memory_budget: int | None = None,
    check: str | None = None,
) -> Runtime:
    """Open an artifact. `verify="full"` digests every file; `poison` (1..255) is a debug fill of memory.

    `weights` is the checkpoint directory of an artifact that maps its weights; all their bytes are compared.
    A plan whose memory beside the weights exceeds `memory_budget` bytes is refused before anything is reserved (E0707).
    `check` is "off", "full" or "full:SEED"; None leaves it to DSV41C_CHECK in the environment. Full checks are for
    the CPU: every launch is watched (E0805), and no result changes.

    For CUDA targets: the index of the device; for debugging `cuda_mode="eager"`, launches one by one instead of
    graphs, and the driver library if it is not libcuda.so.1.
    """
    _check_choice("verify", verify, ("header", "full"))
    _check_choice("cuda_mode", cuda_mode, _CUDA_MODES)
    _check_budget(memory_budget)
    addresses = [aten_provider()] if _needs_aten(Path(path)) else []
    providers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
    driver = None if cuda_driver is None else os.fsencode(cuda_driver)
    options = LoadOptions(verify == "full", len(addresses), providers, poison, device,
                          _CUDA_MODES.index(cuda_mode), 0, driver, None if weights is None else os.fsencode(weights),
                          memory_budget or 0, None if check is None else check.encode())
    handle = ctypes.c_void_p()
    _Caller()(interface().open, os.fsencode(path), ctypes.byref(options), ctypes.byref(handle))
    return Runtime(handle)


def heap_allocations() -> int:
    """Heap allocations that the executor's library has made in this process."""
    return interface().heap_allocations()


class Runtime:
    """An opened artifact. Arrays it returns are views: valid until the next step and until close()."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._open_handle: ctypes.c_void_p | None = handle
        self._process = os.getpid()
        self._call = _Caller()
        self._engine: Engine | None = None

    def engine(self, **limits: int) -> Engine:
        """The engine over this runtime: the one that is open, or with `limits` (see Engine) or at first another.

        While it is open the runtime takes no steps, gives no outputs and no state itself (E0801).
        """
        if self._engine is None or self._engine.is_closed or limits:
            if self._engine is not None:
                self._engine.close()
            self._engine = Engine(self._handle, **limits)
        return self._engine

    def generate(self, prompt_ids: Sequence[int] | Sequence[Sequence[int]], **settings: Any) -> Answer | list[Answer]:
        """Answer one prompt of token ids, or a batch of them; `settings` are those of SamplingParams.

        A prompt that is refused raises (E0901, E0902, E1001, E1002); a request that fails says so in its answer.
        """
        params = SamplingParams(**settings)
        if len(prompt_ids) > 0 and isinstance(prompt_ids[0], Sequence | np.ndarray):
            return self.engine().generate(cast(Sequence[Sequence[int]], prompt_ids), params)
        return self.engine().generate([cast(Sequence[int], prompt_ids)], params)[0]

    def stream(self, prompt_ids: Sequence[int], **settings: Any) -> AsyncIterator[Tokens]:
        """Answer one prompt token by token; leaving the loop cancels."""
        return self.engine().stream(prompt_ids, SamplingParams(**settings))

    def step(self, upload: Array, keep_rows: Array, logit_rows: Array, eager: bool = False) -> None:
        """Run one step: upload int32 [n, 5]; keep_rows index its rows, logit_rows index the kept rows.

        keep_rows are all rows unless the artifact was compiled with --suffix-mode mask or compact; then a slot's last
        rows may be kept alone, and the first of them carries FLOOR (8) in FLAGS.
        On a CUDA target it returns once the work is on the device's stream.
        """
        inputs, _ = _step_inputs(upload, keep_rows, logit_rows, eager)
        self._call(interface().step, self._own_handle, ctypes.byref(inputs))

    def synchronize(self) -> None:
        """Wait until all steps have run."""
        self._call(interface().synchronize, self._own_handle)

    def output(self, name: str) -> Array:
        """An output of the last step, one row for each requested row."""
        return self._view(interface().output, name)

    def state(self, name: str) -> Array:
        """A state tensor (bfloat16 as uint16): in place on the CPU, a copy on CUDA."""
        return self._view(interface().state, name)

    def write_state(self, name: str, values: Array) -> None:
        """Overwrite a whole state tensor, with values of the form that `state` gives: for tests and rollback."""
        held, given = self.state(name), np.asarray(values)
        if (given.dtype, given.shape) != (held.dtype, held.shape):
            raise Dsv41cError("DSV41C-E0801", f"state {name}", found=f"{given.dtype} {list(given.shape)}",
                              needed=f"{held.dtype} {list(held.shape)}", do="convert the array")
        data = np.ascontiguousarray(given)
        self._call(interface().state_write, self._own_handle, name.encode(), data.ctypes.data, data.nbytes)

    def graph_bench(self, replays: int = 21) -> dict[str, Any]:
        """Internal: cost of graphs built, captured and cut into pieces; the state starts afresh after it."""
        return self._bench(interface().graph_bench, replays)

    def step_bench(self, upload: Array, keep_rows: Array, logit_rows: Array, steps: int = 1000) -> dict[str, Any]:
        """Internal: host time of one step that is run `steps` times."""
        inputs, _ = _step_inputs(upload, keep_rows, logit_rows, eager=False)
        return self._bench(interface().step_bench, ctypes.byref(inputs), steps)

    def num_records(self) -> int:
        return interface().num_records(self._handle)

    def records(self, since: int = 0) -> list[DecisionRecord]:
        """Decision records from number `since` on, as far as they are kept: the newest 65,536."""
        count = self.num_records()
        return [self._record(index) for index in range(max(since, count - KEPT_RECORDS, 0), count)]

    def report(self) -> dict[str, Any]:
        """Memory, launches, ATen allocations and limits as found at load."""
        report: dict[str, Any] = json.loads(interface().report(self._handle))
        return report

    def close(self) -> None:
        """Release everything; views of outputs and state must not be used afterwards."""
        if self._engine is not None and os.getpid() == self._process:
            self._engine.close()
        if self._open_handle is not None and os.getpid() == self._process:
            interface().close(self._open_handle)
            self._open_handle = None

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def _handle(self) -> ctypes.c_void_p:
        if os.getpid() != self._process:  # ATen's threads and a CUDA context do not survive a fork
            raise Dsv41cError("DSV41C-E0801", "runtime", found="a runtime that the parent process opened",
                              needed="one of this process", do="load it again after the fork")
        if self._open_handle is None:
            raise Dsv41cError("DSV41C-E0801", "runtime", found="a closed runtime", needed="an open one",
                              do="load it again")
        return self._open_handle

    @property
    def _own_handle(self) -> ctypes.c_void_p:
        """For what changes or reads the executor's memory."""
        if self._engine is not None and not self._engine.is_closed:
            raise Dsv41cError("DSV41C-E0801", "runtime", found="a runtime that an engine works with",
                              needed="the runtime alone", do="close the engine first")
        return self._handle

    def _view(self, function: Any, name: str) -> Array:
        tensor = Tensor()
        self._call(function, self._own_handle, name.encode(), ctypes.byref(tensor))
        return _as_array(tensor)

    def _bench(self, function: Any, *arguments: Any) -> dict[str, Any]:
        text = ctypes.c_char_p()
        self._call(function, self._own_handle, *arguments, ctypes.byref(text))
        result: dict[str, Any] = json.loads(text.value or b"null")
        return result

    def _record(self, index: int) -> DecisionRecord:
        record = Record()
        self._call(interface().record_at, self._handle, index, ctypes.byref(record))
        return DecisionRecord(record.method.decode(), record.bucket, record.rows, record.pad_rows,
                              bool(record.eager), record.reason.decode(), record.us)


def _needs_aten(path: Path) -> bool:
    """Whether the manifest asks for ATen. One that cannot be read is left to the executor's own checks."""
    try:
        manifest = json.loads((path / "dsv41c.json").read_bytes())
        return not manifest["plan_only"] and "aten_composites" in manifest["required_features"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


class _Caller:
    """Calls the C interface with one error buffer, so that a step makes no Python garbage."""

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(ERROR_BYTES)
        self._error = Error(ctypes.addressof(self._text), ERROR_BYTES)

    def __call__(self, function: Any, *arguments: Any) -> None:
        if function(*arguments, ctypes.byref(self._error)) != 0:
            raise _reported(self._text.value)


def _reported(text: bytes) -> Dsv41cError:
    """The error in `text`; text of another form is not lost either."""
    try:
        return Dsv41cError.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Dsv41cError("DSV41C-E0802", "internal failure", found=text.decode(errors="replace") or "no message",
                           needed="an error report as JSON", do="report it with the plan and the inputs")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise Dsv41cError("DSV41C-E0901", name, found=repr(value), needed=" or ".join(map(repr, choices)),
                          do="correct the call")


def _check_budget(value: int | None) -> None:
    if value is not None and (type(value) is not int or not 1 <= value < 2**63):
        raise Dsv41cError("DSV41C-E0901", "memory_budget", found=repr(value), needed="bytes from 1 to 2**63 - 1",
                          do="pass a number of bytes, or None for no limit")


def _step_inputs(upload: Array, keep_rows: Array, logit_rows: Array, eager: bool) -> tuple[StepInputs, object]:
    """The struct, and the arrays that it points into."""
    rows = _int32(upload, "upload", 5)
    keep, logits = _int32(keep_rows, "keep_rows", 0), _int32(logit_rows, "logit_rows", 0)
    # Not .ctypes.data, which is Python code in NumPy.
    addresses = [array.__array_interface__["data"][0] for array in (rows, keep, logits)]
    return StepInputs(addresses[0], len(rows), addresses[1], len(keep), addresses[2], len(logits), eager, 0), (
        rows, keep, logits)


def _int32(values: Array, name: str, columns: int) -> npt.NDArray[np.int32]:
    array = np.asarray(values)
    shape_ok = array.ndim == 2 and array.shape[1] == columns if columns else array.ndim == 1
    if array.dtype != np.int32 or not shape_ok:
        raise Dsv41cError("DSV41C-E0801", name, found=f"{array.dtype} {list(array.shape)}",
                          needed=f"int32 [n, {columns}]" if columns else "int32 [n]", do="convert the array")
    return np.ascontiguousarray(array)


def _as_array(tensor: Tensor) -> Array:
    dtype = np.dtype(_NUMPY_DTYPES[tensor.dtype])
    sizes, strides = tensor.sizes[:tensor.ndim], tensor.strides[:tensor.ndim]
    if 0 in sizes:
        return np.empty(sizes, dtype)
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    buffer = (ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(tensor.data)
    return np.ndarray(sizes, dtype, buffer, strides=[stride * dtype.itemsize for stride in strides])
