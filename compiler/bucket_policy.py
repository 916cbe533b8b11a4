"""The bucket policy that compile options ask for."""

from __future__ import annotations

from dsv41c.compiler.bounds import kept_of_prompt
from dsv41c.compiler.bucket_options import DEFAULT_STEP, explicit_buckets
from dsv41c.compiler.measured_sizes import histogram_of
from dsv41c.compiler.options import CompileOptions
from dsv41c.graphs.buckets import (
    Buckets,
    DefaultPolicy,
    ExplicitPolicy,
    HistogramPolicy,
    Policy,
    PowersPolicy,
    StepPolicy,
)


def buckets_of(options: CompileOptions) -> Buckets:
    """Of options that were checked."""
    step = options.bucket_step or DEFAULT_STEP
    policies: dict[str, Policy] = {
        "default": DefaultPolicy(), "powers": PowersPolicy(step), "step": StepPolicy(step),
        "explicit": ExplicitPolicy(explicit_buckets(options)),
        "histogram": HistogramPolicy(histogram_of(options.histogram)),
    }
    return Buckets(policies[options.bucket_policy], options.max_graphs, keep=kept_of_prompt(options),
                   max_eager_rows=options.max_eager_rows)
