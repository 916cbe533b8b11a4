#include "capi/aten_library.h"

#include <dlfcn.h>

#include <algorithm>

#include "dsv41c/dsv41c.h"
#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c::capi {
namespace {

constexpr const char* NAME = "libdsv41c_aten.so";

std::string beside_this_library() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&aten_provider), &self) == 0 || !self.dli_fname) return NAME;
  const std::string path = self.dli_fname;
  const size_t end = path.rfind('/');
  return end == std::string::npos ? NAME : path.substr(0, end + 1) + NAME;
}

const dsv41c_provider* open_provider(const std::string& path) {
  using Entry = const dsv41c_provider* (*)();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const entry = library ? dlsym(library, "dsv41c_aten_provider") : nullptr;
  if (entry) return reinterpret_cast<Entry>(entry)();
  const char* const why = dlerror();
  throw Error({.code = plan_format::E0702,
               .subject = path,
               .found = why ? why : "no symbol dsv41c_aten_provider",
               .needed = "the provider that comes with this library, and the torch that it was built with",
               .action = "install both, or compile the artifact for a target that needs no ATen"});
}

}  // namespace

const dsv41c_provider* aten_provider(const Plan& plan) {
  const auto& features = plan.required_features;
  if (std::ranges::find(features, "aten_composites") == features.end()) return nullptr;
  static const dsv41c_provider* const provider = open_provider(beside_this_library());  // again after a failure
  return provider;
}

}  // namespace dsv41c::capi
