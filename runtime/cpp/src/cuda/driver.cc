// Opens the driver library, fills the table and words its errors.
#include "cuda/driver.h"

#include <dlfcn.h>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c::cuda {
namespace {

[[noreturn]] void no_driver(const std::string& library, const std::string& found) {
  throw Error({.code = plan_format::E0704,
               .subject = "CUDA driver " + library,
               .found = found,
               .needed = "a driver library for CUDA 12.0 or later",
               .action = "run on a machine with an NVIDIA driver, or compile the artifact with --target cpu"});
}

// "cuMemAlloc_v2" is cuMemAlloc to everybody who reads the driver's documentation.
std::string documented(std::string name) {
  const size_t version = name.rfind("_v");
  return version == std::string::npos ? name : name.substr(0, version);
}

}  // namespace

template <class... Parameters>
void Driver::resolve(void* library, Function<Parameters...>& function) {
  void* address = ::dlsym(library, function.name);
  if (!address) no_driver(library_, std::string("no function ") + function.name);
  function.address = reinterpret_cast<Result (*)(Parameters...)>(address);
}

Driver::Driver(const std::string& library) : library_(library) {
  void* opened = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened) no_driver(library, ::dlerror());
  const auto all = [&](auto&... functions) { (resolve(opened, functions), ...); };
  all(error_name, error_string, init, version, device_count, device_get, device_name, device_attribute, context_retain,
      context_release, context_push, context_pop, memory_info, memory_allocate, memory_free, pinned_allocate,
      pinned_free, copy_in_async, copy_out_async, copy_async, fill_8, fill_16, fill_32, fill_32_strided, stream_create,
      stream_destroy, stream_synchronize, capture_begin, capture_end, event_create, event_destroy, event_record,
      event_synchronize, event_elapsed, module_load, module_unload, module_function, function_set, launch, graph_create,
      graph_destroy, graph_add_kernel, graph_add_copy, graph_add_memset, encode_map, graph_instantiate,
      executable_destroy, graph_upload, graph_launch);
}

std::string_view Driver::code() const { return is_loading_ ? plan_format::E0703 : plan_format::E0802; }

std::string Driver::describe(const char* name, Result result) const {
  const char *symbol = nullptr, *words = nullptr;
  error_name.address(result, &symbol);
  error_string.address(result, &words);
  return documented(name) + ": " + (symbol ? symbol : "unknown result") + " (" + std::to_string(result) + ")" +
         (words ? std::string(", ") + words : "");
}

void Driver::fail(const char* name, Result result) const {
  const bool is_memory = is_loading_ && result == OUT_OF_MEMORY;
  throw Error({.code = is_memory ? plan_format::E0701 : code(),
               .subject = "a call of the CUDA driver failed",
               .found = describe(name, result),
               .needed = is_loading_ ? "every call to succeed"
                                     : "every call to succeed; the state of this step's slots is now undefined",
               .action = is_memory     ? "free device memory, or compile with smaller bounds"
                         : is_loading_ ? "check the device with nvidia-smi; if it is well, report this message"
                                       : "close this executor and load again; report the failure with this message"});
}

}  // namespace dsv41c::cuda
