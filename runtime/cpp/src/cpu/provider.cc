// The cpu provider: looks native kernels up by entry name and adapts them to provider.h.
#include <algorithm>
#include <cstdio>

#include "kernel.h"

namespace dsv41c::cpu {

const nlohmann::json& Attributes::at(const char* name) const {
  auto found = values_.find(name);
  if (found == values_.end()) throw std::invalid_argument(std::string("attribute ") + name + " is missing");
  return *found;
}
int64_t Attributes::integer(const char* name) const {
  const auto& v = at(name);
  if (!v.is_number_integer())
    throw std::invalid_argument(std::string("attribute ") + name + " is no integer: " + v.dump());
  return v.get<int64_t>();
}
double Attributes::real(const char* name) const {
  const auto& v = at(name);
  if (!v.is_object() || !v.contains("f"))
    throw std::invalid_argument(std::string("attribute ") + name + " is no float: " + v.dump());
  return std::stod(v.at("f").get<std::string>());
}
bool Attributes::flag(const char* name) const {
  const auto& v = at(name);
  if (!v.is_boolean()) throw std::invalid_argument(std::string("attribute ") + name + " is no boolean: " + v.dump());
  return v.get<bool>();
}
int32_t Attributes::dtype(const char* name) const {
  const auto& v = at(name);
  const std::string text = v.is_object() && v.contains("dtype") ? v.at("dtype").get<std::string>() : "";
  if (text == "float32") return DSV41C_FLOAT32;
  if (text == "bfloat16") return DSV41C_BFLOAT16;
  throw std::invalid_argument(std::string("attribute ") + name + " is no activation dtype: " + v.dump());
}

void require(const dsv41c_tensor& t, const char* name, std::initializer_list<int32_t> dtypes, int ndim) {
  const std::string where = std::string("tensor ") + name;
  if (t.ndim != ndim)
    throw std::invalid_argument(where + " has rank " + std::to_string(t.ndim) + ", needed " + std::to_string(ndim));
  if (std::find(dtypes.begin(), dtypes.end(), t.dtype) == dtypes.end())
    throw std::invalid_argument(where + " has dtype code " + std::to_string(t.dtype) +
                                ", which the kernel does not take");
  int64_t expected = 1;
  for (int d = ndim - 1; d >= 0; --d) {
    if (t.sizes[d] != 1 && t.strides[d] != expected)
      throw std::invalid_argument(where + " is not contiguous in dimension " + std::to_string(d));
    expected *= t.sizes[d];
  }
}
void require_size(const dsv41c_tensor& t, const char* name, int dim, int64_t expected) {
  if (t.sizes[dim] != expected)
    throw std::invalid_argument(std::string("tensor ") + name + " has size " + std::to_string(t.sizes[dim]) +
                                " in dimension " + std::to_string(dim) + ", needed " + std::to_string(expected));
}
void require_scratch(const Call& call, int64_t bytes) {
  if (call.scratch_bytes < bytes)
    throw std::invalid_argument("scratch of " + std::to_string(call.scratch_bytes) + " bytes, needed " +
                                std::to_string(bytes));
}

namespace {

struct Bound {
  const Kernel* kernel;
  Call call;
};

int32_t fail(dsv41c_error* error, const std::string& text) {
  if (error && error->text && error->capacity > 0) std::snprintf(error->text, error->capacity, "%s", text.c_str());
  return 1;
}

Factory find(const std::string& entry) {
  for (auto list : {row_entries, linear_entries, mhc_entries, moe_entries, expert_entries, attention_entries,
                    store_entries, index_entries, engram_entries, draft_entries})
    for (const Entry& e : list())
      if (entry == e.name) return e.make;
  throw std::invalid_argument("no native kernel named " + entry);
}

int32_t prepare(const char* body, void** kernel, dsv41c_error* error) {
  try {
    auto parsed = nlohmann::json::parse(body);
    const auto entry = parsed.at("entry").get<std::string>();
    *kernel = find(entry)(Attributes(parsed.at("attributes"))).release();
    return 0;
  } catch (const std::exception& e) {
    return fail(error, std::string("cpu kernel: ") + e.what());
  }
}

int32_t bind(void* kernel, const dsv41c_binding* b, void** bound, dsv41c_error* error) {
  try {
    if (b->device >= 0)
      throw std::invalid_argument("tensors of CUDA device " + std::to_string(b->device) + ", needed the CPU's");
    auto made = std::make_unique<Bound>();
    made->kernel = static_cast<const Kernel*>(kernel);
    made->call.tensors.assign(b->tensors, b->tensors + b->num_tensors);
    made->call.scratch = b->scratch;
    made->call.scratch_bytes = b->scratch_bytes;
    made->kernel->check(made->call);
    *bound = made.release();
    return 0;
  } catch (const std::exception& e) {
    return fail(error, std::string("cpu kernel: ") + e.what());
  }
}

int32_t launch(void* bound, dsv41c_error*) {
  const auto* b = static_cast<const Bound*>(bound);
  b->kernel->run(b->call);
  return 0;
}

void unbind(void* bound) { delete static_cast<Bound*>(bound); }
void release(void* kernel) { delete static_cast<Kernel*>(kernel); }
void count_allocations(int32_t, dsv41c_allocations* counted) { *counted = {}; }

const dsv41c_provider PROVIDER = {DSV41C_PROVIDER_ABI, 0, "cpu", prepare, bind, launch, unbind, release,
                                  count_allocations};

}  // namespace
}  // namespace dsv41c::cpu

extern "C" __attribute__((visibility("default"))) const dsv41c_provider* dsv41c_cpu_provider() {
  return &dsv41c::cpu::PROVIDER;
}
