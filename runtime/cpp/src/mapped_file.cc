// Maps files with mmap.
#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

[[noreturn]] void fail(const std::string& path, const char* move) {
  throw Error({.code = plan_format::E0601,
               .subject = path,
               .found = std::string(move) + ": " + std::strerror(errno),
               .needed = "a readable file of the artifact",
               .action = "copy the whole artifact directory, or compile it again"});
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, "open");
  struct stat facts{};
  void* mapped = nullptr;
  const char* failed = nullptr;
  if (::fstat(file, &facts) != 0) {
    failed = "stat";
  } else if (!S_ISREG(facts.st_mode)) {
    errno = EINVAL;
    failed = "not a regular file";
  } else if (facts.st_size > 0) {
    mapped = ::mmap(nullptr, static_cast<size_t>(facts.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) failed = "mmap";
  }
  const int reason = errno;
  ::close(file);
  errno = reason;
  if (failed) fail(path, failed);
  data_ = static_cast<const uint8_t*>(mapped);
  size_ = facts.st_size;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

}  // namespace dsv41c
