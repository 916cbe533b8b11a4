// Rules of CUDA bodies: launch shapes that a device takes, bytes inside the scratch, cubins by digest.
#include <algorithm>
#include <cstdlib>
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
    broken("bad block", where, numbers(launch.block),
           "1 to " + std::to_string(plan_format::MAX_BLOCK_THREADS) + " threads");
  if (launch.shared_bytes < 0 || launch.shared_bytes > plan_format::MAX_SHARED_BYTES)
    broken("bad shared memory", where, std::to_string(launch.shared_bytes),
           "0 to " + std::to_string(plan_format::MAX_SHARED_BYTES) + " bytes");
}

// Where it points to in the scratch (0 for a tensor); `bytes` from there on lie inside.
int64_t check_pointer(const Param& pointer, int64_t bytes, const Symbols& symbols, int64_t scratch_bytes,
                      const Where& where) {
  if (pointer.kind == ParamKind::tensor) {
    if (pointer.tensor < 0) broken("argument index out of range", where, std::to_string(pointer.tensor), "at least 0");
    return 0;
  }
  const int64_t offset = evaluate_extent(pointer.value, symbols, where);
  if (offset < 0 || offset > scratch_bytes - bytes)
    broken("parameter outside the scratch", where,
           std::to_string(offset) + (bytes > 0 ? " and " + std::to_string(bytes) + " bytes" : ""),
           "0 to " + std::to_string(scratch_bytes));
  return offset;
}

void check_transfer(const CudaLaunch& node, const Symbols& symbols, int64_t scratch_bytes, const std::string& place) {
  const auto where = [&] { return place; };
  const int64_t bytes = evaluate_extent(node.bytes, symbols, where);
  const int64_t most = node.kind == NodeKind::copy ? plan_format::MAX_COPY_BYTES : plan_format::MAX_BYTES;
  if (bytes < 1 || bytes > most)
    broken("bad number of bytes", where, std::to_string(bytes), "1 to " + std::to_string(most));
  const int64_t target = check_pointer(node.target, bytes, symbols, scratch_bytes, where);
  if (node.kind == NodeKind::memset) {
    if (node.value < 0 || node.value > 255) broken("bad memset value", where, std::to_string(node.value), "0 to 255");
    return;
  }
  const int64_t source = check_pointer(node.source, bytes, symbols, scratch_bytes, where);
  if (node.target.kind != node.source.kind) return;
  const bool overlaps = node.target.kind == ParamKind::tensor ? node.target.tensor == node.source.tensor
                                                              : std::abs(target - source) < bytes;
  if (overlaps)
    broken("copy overlaps itself", where, "bytes " + std::to_string(target) + " and " + std::to_string(source),
           std::to_string(bytes) + " bytes apart");
}

void check_param(const Param& param, const Symbols& symbols, int64_t scratch_bytes, const Where& where) {
  if (param.kind == ParamKind::float_) return;
  if (param.kind == ParamKind::tensor_map) return check_tensor_map(param, symbols, scratch_bytes, where);
  if (param.kind == ParamKind::tensor || param.kind == ParamKind::scratch) {
    check_pointer(param, 0, symbols, scratch_bytes, where);
    return;
  }
  const int64_t value = evaluate_at(param.value, symbols, where);
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
    (kernel.launches[i].kind == NodeKind::kernel ? check_launch : check_transfer)(
        kernel.launches[i], symbols, scratch_bytes, place + ", cuda launch " + std::to_string(i));
}

}  // namespace dsv41c::verifier
