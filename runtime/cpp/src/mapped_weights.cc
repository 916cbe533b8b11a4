// Resolves range recipes to bytes and compares their digests.
#include "mapped_weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

#include "dsv41c/plan_generated.h"
#include "error.h"
#include "json_reader.h"
#include "sha256.h"

namespace dsv41c {
namespace {

using Json = nlohmann::json;
constexpr int64_t VERSION = 1;
constexpr size_t ALIGNMENT = plan_format::ALIGNMENT;

[[noreturn]] void malformed(const std::string& path, const std::string& found, const std::string& needed) {
  throw Error({.code = plan_format::E0703,
               .subject = "bad weight map " + path,
               .found = found,
               .needed = needed,
               .action = "compile the artifact again"});
}

[[noreturn]] void other_checkpoint(const std::string& subject, const std::string& found, const std::string& needed) {
  throw Error({.code = plan_format::E0602,
               .subject = subject + " is not what the artifact was compiled from",
               .found = found,
               .needed = needed,
               .action = "give the same checkpoint, or compile this one"});
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

}  // namespace

MappedWeights::MappedWeights(const std::string& mapping, const std::string& directory) : directory_(directory) {
  const MappedFile file(mapping);
  const Json root = Json::parse(file.text(), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) malformed(mapping, "no JSON object", "the JSON object that compile writes");
  try {
    if (const auto version = strict_integer(root.at("version")); version != VERSION)
      malformed(mapping, "version " + std::to_string(version), "version " + std::to_string(VERSION));
    for (const Json& node : root.at("files")) {
      const auto name = node.at("name").get<std::string>();
      const auto bytes = strict_integer(node.at("bytes"));
      if (!is_file_name(name)) malformed(mapping, "shard \"" + name + "\"", "names of files in one directory");
      files_.push_back(std::make_unique<MappedFile>(directory + "/" + name));
      const int64_t size = files_.back()->size();
      if (size != bytes)
        other_checkpoint(files_.back()->path(), std::to_string(size) + " bytes", std::to_string(bytes) + " bytes");
    }
    for (const auto& [name, node] : root.at("weights").items()) {
      Entry entry{{}, strict_integer(node.at("part_bytes")), node.at("sha256").get<std::string>()};
      for (const Json& part : node.at("parts"))
        entry.parts.push_back({static_cast<size_t>(strict_integer(part.at(0))), strict_integer(part.at(1))});
      check_parts(name, entry);
      entries_.emplace(name, std::move(entry));
    }
  } catch (const Json::exception& e) {
    malformed(mapping, e.what(), "the keys that compile writes");
  }
}

void MappedWeights::check_parts(const std::string& name, const Entry& entry) const {
  bool inside = !entry.parts.empty() && entry.part_bytes >= 0;
  for (const Part& part : entry.parts)
    inside = inside && part.file < files_.size() && part.begin >= 0 && part.begin <= files_[part.file]->size() &&
             entry.part_bytes <= files_[part.file]->size() - part.begin;
  if (!inside) malformed(NAME, "weight " + name + " outside its shards", "ranges inside the shards");
}

const StoredTensor* MappedWeights::take(const Weight& weight) {
  const Entry& entry = entries_.at(weight.name);
  const auto count = static_cast<int64_t>(entry.parts.size());
  int64_t bytes = item_bytes(weight.dtype);
  for (int64_t size : weight.sizes) bytes *= size;
  if (entry.part_bytes != bytes / count || bytes % count != 0)
    malformed(NAME,
              "weight " + weight.name + ": " + std::to_string(count) + " parts of " + std::to_string(entry.part_bytes) +
                  " bytes",
              std::to_string(bytes) + " bytes");
  const Part& first = entry.parts.front();
  const uint8_t* data = lies_together(entry, item_bytes(weight.dtype)) ? files_[first.file]->data() + first.begin
                                                                       : gather(weight.name, entry);
  taken_.push_back({weight.name, {"", weight.sizes, data, bytes}, &entry.sha256});
  return &taken_.back().tensor;
}

bool MappedWeights::lies_together(const Entry& entry, int64_t item_bytes) const {
  const Part& first = entry.parts.front();
  for (size_t i = 1; i < entry.parts.size(); ++i)
    if (entry.parts[i].file != first.file ||
        entry.parts[i].begin != first.begin + static_cast<int64_t>(i) * entry.part_bytes)
      return false;
  return first.begin % item_bytes == 0;  // a mapping starts at a page
}

const uint8_t* MappedWeights::gather(const std::string& name, const Entry& entry) {
  const size_t part = static_cast<size_t>(entry.part_bytes), bytes = part * entry.parts.size();
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT));
  if (!memory)
    throw Error({.code = plan_format::E0701,
                 .subject = "memory for weight " + name,
                 .found = "allocation failed",
                 .needed = std::to_string(bytes) + " bytes",
                 .action = "free memory, or compile with packed weights, which are mapped in place"});
  gathered_.emplace_back(memory);
  for (size_t i = 0; i < entry.parts.size(); ++i)
    std::memcpy(memory + i * part, files_[entry.parts[i].file]->data() + entry.parts[i].begin, part);
  gathered_bytes_ += static_cast<int64_t>(bytes);
  return memory;
}

void MappedWeights::check_digests() const {
  std::vector<uint8_t> differs(taken_.size(), 0);
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::atomic_flag failed;
  const auto work = [&] {
    try {
      for (size_t i; (i = next.fetch_add(1)) < taken_.size();) {
        const Taken& weight = taken_[i];
        differs[i] = sha256_hex(weight.tensor.data, static_cast<size_t>(weight.tensor.bytes)) != *weight.sha256;
      }
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    const size_t wanted = std::min<size_t>(std::max(1U, std::thread::hardware_concurrency()), taken_.size());
    for (size_t i = 1; i < wanted; ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  const auto first = std::ranges::find(differs, 1);
  if (first == differs.end()) return;
  const Taken& weight = taken_[static_cast<size_t>(first - differs.begin())];
  other_checkpoint("weight " + weight.name + " of " + directory_,
                   "digest " + sha256_hex(weight.tensor.data, static_cast<size_t>(weight.tensor.bytes)),
                   "digest " + *weight.sha256);
}

}  // namespace dsv41c
