// Header of a safetensors file: 8 bytes of length, that many bytes of JSON, then the tensors' bytes.
#include "safetensors.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "json_reader.h"

namespace dsv41c {
namespace {

using Json = nlohmann::json;

constexpr std::pair<std::string_view, int32_t> STORED_DTYPES[] = {
    {"F32", DSV41C_FLOAT32},
    {"BF16", DSV41C_BFLOAT16},
    {"F8_E4M3", DSV41C_FLOAT8_E4M3FN},
    {"F8_E8M0", DSV41C_FLOAT8_E8M0FNU},
    {"I8", DSV41C_INT8},
    {"U8", DSV41C_UINT8},
    {"I32", DSV41C_INT32},
    {"I64", DSV41C_INT64},
    {"F64", DSV41C_FLOAT64},
    {"BOOL", DSV41C_BOOL},
};

[[noreturn]] void refuse(const std::string& path, const std::string& found, const std::string& needed) {
  throw Error({.code = plan_format::E0703,
               .subject = "bad safetensors file " + path,
               .found = found,
               .needed = needed,
               .action = "copy the artifact again, or compile it again"});
}

Json parse_header(const MappedFile& file, int64_t* data_at) {
  uint64_t length = 0;
  if (file.size() < 8) refuse(file.path(), std::to_string(file.size()) + " bytes", "at least 8 bytes");
  std::memcpy(&length, file.data(), 8);
  if (length > static_cast<uint64_t>(file.size()) - 8)
    refuse(file.path(), "a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(file.size()),
           "a header inside the file");
  *data_at = 8 + static_cast<int64_t>(length);
  auto header = Json::parse(file.text().substr(8, length), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) refuse(file.path(), "a header that is no JSON object", "a JSON object");
  return header;
}

StoredTensor parse_tensor(const MappedFile& file, int64_t data_at, const std::string& name, const Json& node) {
  StoredTensor tensor;
  tensor.dtype = node.at("dtype").get<std::string>();
  tensor.sizes = strict_integers(node.at("shape"));
  const auto offsets = strict_integers(node.at("data_offsets"));
  const int64_t room = file.size() - data_at;
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] > room)
    refuse(file.path(), "tensor " + name + " at " + node.at("data_offsets").dump(),
           "a range inside the " + std::to_string(room) + " bytes of data");
  tensor.data = file.data() + data_at + offsets[0];
  tensor.bytes = offsets[1] - offsets[0];
  return tensor;
}

}  // namespace

int32_t dtype_of_stored(std::string_view name) {
  for (const auto& [stored, code] : STORED_DTYPES)
    if (stored == name) return code;
  return -1;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  int64_t data_at = 0;
  const Json header = parse_header(file_, &data_at);
  try {
    for (const auto& [name, node] : header.items())
      if (name != "__metadata__") tensors_.emplace(name, parse_tensor(file_, data_at, name, node));
  } catch (const Json::exception& e) {
    refuse(path, e.what(), "dtype, shape and data_offsets for every tensor");
  }
}

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace dsv41c
