// dsv41c.json of an artifact and the files it lists.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dsv41c {

struct ListedFile {
  int64_t bytes = 0;
  std::string sha256;
};

struct Manifest {
  std::vector<std::string> required_features;
  std::string model_digest;
  std::string plan_digest;
  std::map<std::string, ListedFile> files;
};

// E0601 missing, E0703 malformed, E0604 another format version, E0603 plan-only, E0503 unknown feature.
Manifest read_manifest(const std::string& directory);
// E0601 or E0602: every listed file has its size; the digests of those that `full` or the executor's own need.
void check_files(const Manifest& manifest, const std::string& directory, bool full);

}  // namespace dsv41c
