// Weights that stay in the shards of a checkpoint: weights.json of the artifact says where each of them lies.
#pragma once

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan.h"
#include "safetensors.h"

namespace dsv41c {

class MappedWeights {
 public:
  static constexpr const char* NAME = "weights.json";

  // Maps the shards. E0703 when `mapping` is malformed, E0601 or E0602 when a shard is missing or of another size.
  MappedWeights(const std::string& mapping, const std::string& directory);

  bool holds(const std::string& name) const { return entries_.contains(name); }
  // In place when the weight's parts follow each other in one shard, aligned to its items; else gathered into memory.
  const StoredTensor* take(const Weight& weight);
  // E0602 names the first taken weight whose bytes are not those that were compiled. Reads all of them.
  void check_digests() const;
  int64_t gathered_bytes() const { return gathered_bytes_; }

 private:
  struct Part {
    size_t file;
    int64_t begin;
  };
  struct Entry {
    std::vector<Part> parts;
    int64_t part_bytes;
    std::string sha256;
  };
  struct Taken {
    std::string name;
    StoredTensor tensor;
    const std::string* sha256;
  };
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };

  void check_parts(const std::string& name, const Entry& entry) const;
  bool lies_together(const Entry& entry, int64_t item_bytes) const;
  const uint8_t* gather(const std::string& name, const Entry& entry);

  std::string directory_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, Entry> entries_;
  std::deque<Taken> taken_;  // a deque: pointers to its tensors are handed out
  std::vector<std::unique_ptr<uint8_t, Free>> gathered_;
  int64_t gathered_bytes_ = 0;
};

}  // namespace dsv41c
