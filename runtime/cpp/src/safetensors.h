// Reads the header of a safetensors file and maps its tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mapped_file.h"

namespace dsv41c {

struct StoredTensor {
  std::string dtype;  // as the file spells it: "BF16"
  std::vector<int64_t> sizes;
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);        // E0703 when the header does not describe the file
  const StoredTensor* find(const std::string& name) const;  // null when absent

 private:
  MappedFile file_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

// dsv41c_dtype of a safetensors dtype, -1 when the executor has none.
int32_t dtype_of_stored(std::string_view name);

}  // namespace dsv41c
