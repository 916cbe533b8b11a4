"""Options that `compile` and `plan` share, as Typer declares them: one name each, the default is the signature's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MaxModelLen = Annotated[int | None, typer.Option(help="Most tokens of a request, prompt and output together. "
                                                 "Default: the model's limit, at most 4096.")]
MaxNumSeqs = Annotated[int, typer.Option(help="Most requests at a time.")]
BlockSize = Annotated[int, typer.Option(help="Tokens of a page of the compressed cache.")]
Dtype = Annotated[str, typer.Option(help="float32 or bfloat16.")]
Quantizers = Annotated[str, typer.Option(help="off, or fake: round activations as the model does.")]
KvCacheDtype = Annotated[str, typer.Option(help="auto: that of the activations; packed: FP8 windows, FP4 entries and "
                                           "index keys, with the same results.")]
Target = Annotated[str, typer.Option(help="cpu, sm_90a or sm_100a.")]
BatchInvariant = Annotated[str, typer.Option(metavar="on|off", help="On a CUDA target, off: attention of few rows "
                                             "splits their keys, which is faster, and a row's bits depend on the "
                                             "bucket.")]
Fallback = Annotated[list[str] | None, typer.Option(metavar="OP", help="On a CUDA target, run this op through ATen "
                                                    "instead of its kernel; may be repeated.")]
Without = Annotated[list[str] | None, typer.Option(metavar="PASS", help="Leave this pass out; may be repeated. "
                                                   "`dsv41c passes list` names them.")]
Breaks = Annotated[list[str] | None, typer.Option("--break", metavar="OP", help="End the graph at each launch of this "
                                                  "op, to look for what a graph hides; may be repeated. `dsv41c "
                                                  "explain` names the ops of a plan.")]
SuffixMode = Annotated[str, typer.Option(metavar="off|mask|compact", help="Bounded replay: the decoder half runs on "
                                         "the last rows of a prompt (compact), or on all of them but sees only the "
                                         "last (mask, to compare with).")]
SuffixKeepTokens = Annotated[int | None, typer.Option(metavar="K", help="Rows of a prompt that the decoder half keeps; "
                                                      "default: a window + 12.")]
FullDecoderRows = Annotated[int, typer.Option(metavar="N", help="Rows of a step planned beyond those, for requests "
                                              "that want log-probabilities of their prompts.")]
DraftLen = Annotated[int, typer.Option(metavar="k", help="Most drafts of a request that a step verifies, up to the "
                                       "model's dspark_block_size; 0: none.")]
BucketPolicy = Annotated[str, typer.Option(help="Which row counts get a graph: default, powers, step, explicit or "
                                           "histogram.")]
Buckets = Annotated[list[str] | None, typer.Option(metavar="METHOD=1,2,3", help="Policy explicit: the buckets of a "
                                                   "method; may be repeated.")]
BucketStep = Annotated[int | None, typer.Option(metavar="N", help="Policies powers (from 256 on) and step: rows "
                                                "between buckets. Default: 128.")]
HistogramFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Measured sizes of steps, JSON like "
                                                    '{"decode": {"1": 10, "2": 4}}: for policy histogram, and the '
                                                    "workload of a budget of `dsv41c plan`.")]
MaxGraphs = Annotated[int, typer.Option(metavar="N", help="Most buckets of all methods together.")]
MaxEagerRows = Annotated[int, typer.Option(metavar="N", help="Most rows of one run without a bucket: a prompt's step "
                                           "with more runs in blocks, and memory is planned for one of them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
