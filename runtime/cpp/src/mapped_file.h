// A file mapped read-only for as long as the object lives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dsv41c {

class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // E0601 when it cannot be opened or mapped
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)}; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace dsv41c
