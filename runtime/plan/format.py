"""Names, codes and limits of the plan format, and how a dataclass of the schema says its JSON tag."""

from __future__ import annotations

from typing import Literal, NamedTuple

PLAN_VERSION = 1
FORMAT_VERSION = 1  # of the artifact directory
ALIGNMENT = 64      # bytes; every region and every offset into one
MAX_DIMS = 6
DEVICE_ALIGNMENT = 256  # bytes; of each region on a device, as its driver aligns an allocation
GRAPH_NODE_BYTES = 2542  # device memory of one node of an executable graph, as measured: tools/docs/figures.md
MAX_BYTES = 2**60   # of one tensor, offset or region: sums of a few never leave int64
ROWS = "rows"       # the symbol of kernel expressions: the method's symbol at the launch

FEATURES = ("aten_composites", "cuda_cubin", "kernel_sequences", "mapped_weights", "native_cpu")
TARGETS = ("cpu", "sm_90a", "sm_100a")
AXES = ("rows", "kept_rows", "output_rows", "groups")
PAD_RULES = ("rows", "valid", "none")
MAX_GRID = (2**31 - 1, 65_535, 65_535)  # blocks in x, y, z that a device takes
MAX_BLOCK_THREADS = 1024
MAX_COPY_BYTES = 2**31 - 1  # of one copy node, whose pitch a device bounds so
MAX_SHARED_BYTES = 227 * 1024  # dynamic shared memory of one block on sm_90 and sm_100
# Of tensor maps: what cuTensorMapEncodeTiled takes, each name's position being the driver's number.
INTERLEAVES = ("none", "16b", "32b")
SWIZZLES = ("none", "32b", "64b", "128b")
L2_PROMOTIONS = ("none", "64b", "128b", "256b")
OOB_FILLS = ("zero", "nan")
MAX_MAP_DIMS = 5
MAX_MAP_SIZE = 2**32        # elements of a dimension
MAX_MAP_STRIDE = 2**40 - 1  # bytes
MAX_BOX = 256               # elements of a dimension
MAX_ELEMENT_STRIDE = 8
FLOW_REQUIREMENTS = ("all_rows_output", "nothing")
BUCKET_POLICIES = ("default", "powers", "step", "explicit", "histogram")
ABOVE_LADDER = ("eager", "split")  # what a method does with more rows than its largest bucket
MAX_COST_NS = 10**12  # of a ladder's cost model: times the rows of a step it stays in int64


class Dtype(NamedTuple):
    code: int  # dsv41c_dtype in provider.h
    item_bytes: int


DTYPES: dict[str, Dtype] = {
    "float32": Dtype(0, 4),
    "bfloat16": Dtype(1, 2),
    "float8_e4m3fn": Dtype(2, 1),
    "float8_e8m0fnu": Dtype(3, 1),
    "int8": Dtype(4, 1),
    "uint8": Dtype(5, 1),
    "int32": Dtype(6, 4),
    "int64": Dtype(7, 8),
    "float64": Dtype(8, 8),
    "bool": Dtype(9, 1),
}


class Tag(NamedTuple):
    name: str
    form: Literal["kind", "value", "object"]
