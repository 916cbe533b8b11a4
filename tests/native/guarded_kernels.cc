// While a launch runs, all memory that any launch was ever bound to is poisoned, but for its own tensors and scratch.
#include "guarded_kernels.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace guarded {
namespace {

constexpr int64_t ITEM_BYTES[] = {4, 2, 1, 1, 1, 1, 4, 8, 8, 1};  // by dsv41c_dtype
constexpr uintptr_t LINE = 64;  // every tensor of a reservation starts at one, and no other owner's memory shares one

struct Range {
  uintptr_t begin, end;
  const void* address() const { return reinterpret_cast<const void*>(begin); }
  size_t bytes() const { return end - begin; }
};

Range range_of(const dsv41c_tensor& tensor) {
  int64_t last = 0;
  for (int d = 0; d < tensor.ndim; ++d) {
    if (tensor.sizes[d] == 0) return {0, 0};
    last += (tensor.sizes[d] - 1) * tensor.strides[d];
  }
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
  return {begin, begin + static_cast<uintptr_t>((last + 1) * ITEM_BYTES[tensor.dtype])};
}

std::vector<Range> ranges_of(const dsv41c_binding& binding) {
  std::vector<Range> ranges;
  for (int32_t i = 0; i < binding.num_tensors; ++i)
    if (binding.tensors[i].ndim >= 0) ranges.push_back(range_of(binding.tensors[i]));
  const auto scratch = reinterpret_cast<uintptr_t>(binding.scratch);
  if (scratch) ranges.push_back({scratch, scratch + static_cast<uintptr_t>(binding.scratch_bytes)});
  return ranges;
}

// Disjoint ranges, begin -> end, of all that was bound.
std::map<uintptr_t, uintptr_t> bound_memory;

void remember(Range added) {
  auto at = bound_memory.upper_bound(added.begin);
  if (at != bound_memory.begin()) {
    const auto before = std::prev(at);
    if ((before->second + LINE - 1) / LINE * LINE >= added.begin) at = before;
  }
  while (at != bound_memory.end() && at->first <= (added.end + LINE - 1) / LINE * LINE) {
    added = {std::min(added.begin, at->first), std::max(added.end, at->second)};
    at = bound_memory.erase(at);
  }
  bound_memory[added.begin] = added.end;
}

class Guard {
 public:
  explicit Guard(const std::vector<Range>& allowed) {
    for (const auto& [begin, end] : bound_memory)
      ASAN_POISON_MEMORY_REGION(reinterpret_cast<void*>(begin), end - begin);
    for (const Range& range : allowed) ASAN_UNPOISON_MEMORY_REGION(range.address(), range.bytes());
  }
  ~Guard() {
    for (const auto& [begin, end] : bound_memory)
      ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(begin), end - begin);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
};

// --- native kernels ---------------------------------------

const dsv41c_provider* native = nullptr;

struct Bound {
  void* real;
  std::vector<Range> ranges;
};

int32_t prepare(const char* body, void** kernel, dsv41c_error* error) { return native->prepare(body, kernel, error); }
int32_t bind(void* kernel, const dsv41c_binding* binding, void** bound, dsv41c_error* error) {
  void* real = nullptr;
  if (native->bind(kernel, binding, &real, error) != 0) return 1;
  auto* made = new Bound{real, ranges_of(*binding)};
  for (const Range& range : made->ranges) remember(range);
  return *bound = made, 0;
}
int32_t launch(void* bound, dsv41c_error* error) {
  const auto* b = static_cast<const Bound*>(bound);
  const Guard guard(b->ranges);
  return native->launch(b->real, error);
}
void unbind(void* bound) {
  auto* b = static_cast<Bound*>(bound);
  native->unbind(b->real);
  delete b;
}
void release(void* kernel) { native->release(kernel); }
void count_allocations(int32_t, dsv41c_allocations* counted) { *counted = {}; }

// --- in place of ATen -------------------------------------

using Json = nlohmann::json;

struct Composite {
  std::set<int64_t> outputs;  // positions among the launch's tensors
};

struct BoundComposite {
  std::vector<Range> read;
  std::vector<dsv41c_tensor> written;
  Range scratch;
};

int64_t argument_of(const Json& locals, int64_t local) {
  const Json& found = locals.at(static_cast<size_t>(local));
  if (found.at("kind") == "arg") return found.at("index");
  return found.at("kind") == "view" ? argument_of(locals, found.at("of")) : -1;
}

int32_t prepare_composite(const char* body, void** kernel, dsv41c_error* error) {
  try {
    const Json parsed = Json::parse(body);
    auto made = std::make_unique<Composite>();
    for (const Json& call : parsed.at("calls"))
      for (const Json& argument : call.at("args"))
        if (argument.contains("m")) made->outputs.insert(argument_of(parsed.at("locals"), argument.at("m")));
    return *kernel = made.release(), 0;
  } catch (const std::exception& e) {
    std::snprintf(error->text, static_cast<size_t>(error->capacity), "stub: %s", e.what());
    return 1;
  }
}

int32_t bind_composite(void* kernel, const dsv41c_binding* binding, void** bound, dsv41c_error*) {
  const auto* composite = static_cast<const Composite*>(kernel);
  auto* made = new BoundComposite{ranges_of(*binding), {}, {0, 0}};
  for (const Range& range : made->read) remember(range);
  const auto scratch = reinterpret_cast<uintptr_t>(binding->scratch);
  made->scratch = {scratch, scratch + static_cast<uintptr_t>(binding->scratch_bytes)};
  for (int64_t index : composite->outputs)
    if (index >= 0 && index < binding->num_tensors) made->written.push_back(binding->tensors[index]);
  return *bound = made, 0;
}

volatile unsigned char sink;

void read(const Range& range) {
  const auto* bytes = static_cast<const unsigned char*>(range.address());
  unsigned char sum = 0;
  for (size_t i = 0; i < range.bytes(); ++i) sum ^= bytes[i];
  sink = sum;
}

template <class T>
void fill(const dsv41c_tensor& tensor, int64_t seed, std::initializer_list<T> values) {
  const Range range = range_of(tensor);
  auto* items = reinterpret_cast<T*>(range.begin);
  for (size_t i = 0; i < range.bytes() / sizeof(T); ++i)
    items[i] = values.begin()[(i + static_cast<size_t>(seed)) % values.size()];
}

void write(const dsv41c_tensor& tensor, int64_t seed) {
  switch (tensor.dtype) {
    case DSV41C_FLOAT32:
      return fill<float>(tensor, seed, {0.5f, -3.0f, 0.0f, 1e30f, 0.125f, -__builtin_inff(), __builtin_nanf("")});
    case DSV41C_BFLOAT16:
      return fill<uint16_t>(tensor, seed, {0x3F00, 0xC040, 0, 0x3E00, 0x7F80, 0xFFC0, 0x4248});
    case DSV41C_INT32:
      return fill<int32_t>(tensor, seed, {0, 1, -1, INT32_MAX, INT32_MIN, 7, 1 << 20});
    case DSV41C_INT64:
      return fill<int64_t>(tensor, seed, {0, 1, -1, INT64_MAX, INT64_MIN, 7, 1 << 20});
    default:
      return fill<uint8_t>(tensor, seed, {0, 1, 0x7F, 0xFF, 0x80});
  }
}

int32_t launch_composite(void* bound, dsv41c_error*) {
  static int64_t seed = 0;
  const auto* b = static_cast<const BoundComposite*>(bound);
  const Guard guard(b->read);
  for (const Range& range : b->read) read(range);
  if (b->scratch.bytes() > 0) std::memset(const_cast<void*>(b->scratch.address()), 0xA5, b->scratch.bytes());
  for (const dsv41c_tensor& tensor : b->written) write(tensor, ++seed);
  return 0;
}
void unbind_composite(void* bound) { delete static_cast<BoundComposite*>(bound); }
void release_composite(void* kernel) { delete static_cast<Composite*>(kernel); }

}  // namespace

const dsv41c_provider* native_provider(const dsv41c_provider* real) {
  static const dsv41c_provider provider = {DSV41C_PROVIDER_ABI, 0, "cpu", prepare, bind, launch, unbind, release,
                                           count_allocations};
  native = real;
  return &provider;
}

const dsv41c_provider* stub_aten_provider() {
  static const dsv41c_provider provider = {DSV41C_PROVIDER_ABI,
                                           0,
                                           "aten",
                                           prepare_composite,
                                           bind_composite,
                                           launch_composite,
                                           unbind_composite,
                                           release_composite,
                                           count_allocations};
  return &provider;
}

}  // namespace guarded
