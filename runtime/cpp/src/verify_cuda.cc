// Rules of CUDA bodies: launch shapes that a device takes, scratch offsets inside the scratch, cubins by digest.
#include <algorithm>
#include <limits>

#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

bool is_digest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void check_three(const char* name, size_t dimensions, const Where& where) {
  if (dimensions != 3)
    broken(std::string("bad ") + name, where, std::to_string(dimensions) + " dimensions", "3 dimensions");
}

void check_shape(const CudaLaunch& launch, const Symbols& symbols, const Where& where) {
  check_three("grid", launch.grid.size(), where);
  check_three("block", launch.block.size(), where);
  for (size_t i = 0; i < 3; ++i) {
    const int64_t blocks = evaluate_at(launch.grid[i], symbols, where), most = plan_format::MAX_GRID[i];
    if (blocks < 1 || blocks > most)
      broken("bad grid", where, std::to_string(blocks), "1 to " + std::to_string(most) + " blocks");
  }
  int64_t threads = 1;
  for (int64_t size : launch.block)
    if (__builtin_mul_overflow(threads, size, &threads)) threads = std::numeric_limits<int64_t>::max();
  if (std::ranges::min(launch.block) < 1 || threads > plan_format::MAX_BLOCK_THREADS)
    broken("bad block", where, std::to_string(threads) + " threads",
           "1 to " + std::to_string(plan_format::MAX_BLOCK_THREADS) + " threads");
  if (launch.shared_bytes < 0 || launch.shared_bytes > plan_format::MAX_SHARED_BYTES)
    broken("bad shared memory", where, std::to_string(launch.shared_bytes),
           "0 to " + std::to_string(plan_format::MAX_SHARED_BYTES) + " bytes");
}

void check_param(const Param& param, const Symbols& symbols, int64_t scratch_bytes, const Where& where) {
  if (param.kind == ParamKind::float_) return;
  if (param.kind == ParamKind::tensor) {
    if (param.tensor < 0) broken("argument index out of range", where, std::to_string(param.tensor), "at least 0");
    return;
  }
  const bool is_offset = param.kind == ParamKind::scratch;
  const int64_t value =
      is_offset ? evaluate_extent(param.value, symbols, where) : evaluate_at(param.value, symbols, where);
  if (is_offset && (value < 0 || value > scratch_bytes))
    broken("parameter outside the scratch", where, std::to_string(value), "0 to " + std::to_string(scratch_bytes));
  if (param.kind == ParamKind::int32 && value != static_cast<int32_t>(value))
    broken("parameter outside int32", where, std::to_string(value), "a value that int32 holds");
}

void check_launch(const CudaLaunch& launch, const Symbols& symbols, int64_t scratch_bytes, const std::string& place) {
  const auto where = [&] { return place; };
  if (!is_digest(launch.cubin)) broken("bad cubin digest", where, launch.cubin, "64 lower-case hex digits");
  if (launch.symbol.empty()) broken("no kernel symbol", where, "\"\"", "the function's name in the cubin");
  check_shape(launch, symbols, where);
  for (size_t i = 0; i < launch.params.size(); ++i) {
    const auto at = [&] { return place + ", parameter " + std::to_string(i); };
    check_param(launch.params[i], symbols, scratch_bytes, at);
  }
}

}  // namespace

void check_cuda_body(const Kernel& kernel, const std::string& place, const Symbols& symbols, int64_t scratch_bytes) {
  if (kernel.launches.empty()) broken("body without launches", place, "0", "at least 1 launch");
  for (size_t i = 0; i < kernel.launches.size(); ++i)
    check_launch(kernel.launches[i], symbols, scratch_bytes, place + ", cuda launch " + std::to_string(i));
}

void check_cuda_arguments(const Kernel& kernel, const std::vector<Argument>& tensors, const Where& where) {
  std::set<int64_t> passed;
  for (const CudaLaunch& each : kernel.launches)
    for (const Param& param : each.params)
      if (param.kind == ParamKind::tensor) {
        check_index(param.tensor, tensors.size(), "argument", where);
        passed.insert(param.tensor);
      }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].kind == ArgumentKind::out && !passed.contains(static_cast<int64_t>(i)))
      broken("out is no parameter", where, "argument " + std::to_string(i), "a parameter that points to it");
}

}  // namespace dsv41c::verifier
