// A file in memory under a name of this process, so that what maps files reads the fuzzer's bytes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace fuzz {

class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("fuzz", 0)) {
    if (file_ < 0) std::abort();
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }
  void write(const uint8_t* data, size_t size) const {
    if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  }

 private:
  int file_;
};

}  // namespace fuzz
