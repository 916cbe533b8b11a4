// Reads a manifest and checks the files that it lists: a typed refusal, or nothing.
#include "manifest.h"

#include <sys/stat.h>

#include <filesystem>

#include "error.h"
#include "memory_file.h"

namespace {

// An artifact directory whose manifest is the fuzzer's, with a plan of six bytes beside it.
struct Directory {
  std::string path = "/tmp/dsv41c-fuzz-XXXXXX";
  fuzz::MemoryFile manifest, plan;
  Directory() {
    if (!::mkdtemp(path.data())) std::abort();
    plan.write(reinterpret_cast<const uint8_t*>("plan\n\n"), 6);
    std::filesystem::create_symlink(manifest.path(), path + "/dsv41c.json");
    std::filesystem::create_symlink(plan.path(), path + "/plan.json");
  }
  ~Directory() { std::filesystem::remove_all(path); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Directory directory;
  directory.manifest.write(data, size);
  try {
    dsv41c::check_files(dsv41c::read_manifest(directory.path), directory.path, true);
  } catch (const dsv41c::Error& refusal) {
    if (refusal.json().empty()) __builtin_trap();
  }
  return 0;
}
