// Opens a safetensors file: a typed refusal, or tensors whose bytes lie inside the file.
#include "error.h"
#include "memory_file.h"
#include "safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::MemoryFile input;
  static const std::string path = input.path();
  input.write(data, size);
  try {
    const dsv41c::SafetensorsFile file(path);
    for (const char* name : {"a", "b", ""})
      if (const dsv41c::StoredTensor* tensor = file.find(name)) {
        volatile uint8_t sum = 0;
        for (int64_t i = 0; i < tensor->bytes; ++i) sum = sum ^ tensor->data[i];
      }
  } catch (const dsv41c::Error& refusal) {
    if (refusal.json().empty()) __builtin_trap();
  }
  return 0;
}
