// Structs of a caller of the C interface, with any bytes and any struct_size: a typed refusal, or nothing. Pointers are
// null or show memory that is there, as the rules ask for.
#include "capi/options.h"

#include <cstring>
#include <memory>
#include <vector>

#include "capi/dlpack.h"
#include "capi/structs.h"

namespace {

using namespace dsv41c;

// In memory of exactly the size that the caller claims, so that a read beyond it is seen.
template <class T>
class Given {
 public:
  Given(const uint8_t*& data, size_t& left) {
    uint16_t claimed = 0;
    take(&claimed, sizeof claimed, data, left);
    size_ = claimed % 600;
    if (size_ < sizeof(T)) size_ -= size_ % sizeof(void*);  // half a pointer is no caller's
    bytes_ = std::make_unique<uint8_t[]>(std::max(size_, sizeof(size_t)));
    take(bytes_.get(), size_, data, left);
    std::memcpy(bytes_.get(), &size_, sizeof size_);
  }
  T* get() { return reinterpret_cast<T*>(bytes_.get()); }
  template <class Field>
  void set(size_t offset, Field value) {
    if (offset + sizeof value <= size_) std::memcpy(bytes_.get() + offset, &value, sizeof value);
  }

 private:
  static void take(void* to, size_t count, const uint8_t*& data, size_t& left) {
    const size_t copied = std::min(count, left);
    std::memcpy(to, data, copied);
    data += copied;
    left -= copied;
  }

  size_t size_ = 0;
  std::unique_ptr<uint8_t[]> bytes_;
};

template <class F>
void guarded(F&& call) {
  dsv_status* const status = capi::guard(call);
  if (status && std::strlen(capi::status_json(status)) < 2) __builtin_trap();
  capi::status_free(status);
}

void generate(const uint8_t*& data, size_t& left) {
  static const EngineLimits limits = {.slots = 4,
                                      .rows = 64,
                                      .kept_rows = 64,
                                      .logit_rows = 4,
                                      .context = 128,
                                      .block_size = 16,
                                      .pages = 8,
                                      .vocabulary = 96,
                                      .eos_ids = {1}};
  Given<dsv_generate_params> given(data, left);
  std::vector<int32_t> ids(left / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), data, ids.size() * sizeof(int32_t));
  const std::string name(reinterpret_cast<const char*>(data), std::min<size_t>(left, 300));
  given.set(offsetof(dsv_generate_params, tokens), ids.data());
  given.set(offsetof(dsv_generate_params, n_tokens), ids.size());
  given.set(offsetof(dsv_generate_params, stop_ids), ids.empty() ? nullptr : ids.data());
  given.set(offsetof(dsv_generate_params, n_stop_ids), ids.size() / 2);
  given.set(offsetof(dsv_generate_params, id), left % 2 ? name.c_str() : nullptr);
  guarded([&] {
    const GenerateParams params = capi::read_generate_params(given.get());
    check_params(params, limits);
    if (!(params.top_p > 0 && params.top_p <= 1) || params.prompt.empty()) __builtin_trap();
  });
}

void options(const uint8_t*& data, size_t& left) {
  Given<dsv_engine_options> engine(data, left);
  engine.set(offsetof(dsv_engine_options, log), nullptr);
  guarded([&] {
    static const EngineLimits limits = {.slots = 4, .rows = 64, .context = 128, .block_size = 16, .pages = 8};
    const EngineLimits lower = lowered(limits, capi::engine_options(capi::read_engine_options(engine.get())).lower);
    if (lower.slots > limits.slots || lower.pages > limits.pages || lower.rows < lower.slots) __builtin_trap();
  });
  Given<dsv_open_options> open(data, left);
  guarded([&] { static_cast<void>(capi::read_open_options(open.get())); });
}

void fill(const uint8_t*& data, size_t& left) {
  Given<dsv_stats> stats(data, left);
  guarded([&] { capi::write_struct(stats.get(), "dsv_stats", dsv_stats{}); });
}

// All but the pointers: shape, strides and data show what a caller would have.
void tensor(const uint8_t*& data, size_t& left) {
  struct {
    uint32_t major, minor;
    void *context, *deleter;
    uint64_t flags;
    void* items;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
  } given{};
  std::memcpy(&given, data, std::min(left, sizeof given));
  int64_t shape[1] = {0}, strides[1] = {1};
  std::memcpy(shape, data, std::min(left, sizeof shape));
  std::vector<int32_t> items(left + 2);
  if (shape[0] > static_cast<int64_t>(left)) shape[0] = left % 2 ? static_cast<int64_t>(left) : INT64_MAX;
  given.items = given.items ? items.data() : nullptr;
  given.shape = given.shape ? shape : nullptr;
  given.strides = given.strides ? strides : nullptr;
  given.byte_offset %= 8;
  guarded([&] {
    int64_t sum = 0;
    for (int32_t item : capi::int32_vector(reinterpret_cast<DLManagedTensorVersioned*>(&given), "x")) sum += item;
    if (sum != 0) __builtin_trap();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t which = *data++ % 4;
  --size;
  (which == 0 ? generate : which == 1 ? options : which == 2 ? fill : tensor)(data, size);
  return 0;
}
