// Strict reading of JSON objects: every refusal is an E0501 that names the path, as decoders.py does.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsv41c {

// A place in the document, linked to its parent on the stack; rendered only for an error.
class Path {
 public:
  Path() = default;
  explicit Path(std::string_view root) : key_(root) {}
  Path(const Path& parent, std::string_view key) : parent_(&parent), key_(key) {}
  Path(const Path& parent, size_t index) : parent_(&parent), index_(static_cast<int64_t>(index)) {}
  std::string text() const;

 private:
  const Path* parent_ = nullptr;
  std::string_view key_ = "$";
  int64_t index_ = -1;
};

std::string describe(const nlohmann::json& node);
std::string join(std::span<const std::string_view> words);
[[noreturn]] void malformed(std::string subject, const Path& path, std::string found, std::string needed);

int64_t read_integer(const nlohmann::json& node, const Path& path, std::string_view words = "an integer");
std::string read_string(const nlohmann::json& node, const Path& path);
// For readers whose refusals are nlohmann's exceptions; its own get<int64_t>() takes floats and wraps.
int64_t strict_integer(const nlohmann::json& node);
std::vector<int64_t> strict_integers(const nlohmann::json& node);
// The position of the string in `choices`; `what` names it in the error.
int64_t read_choice(const nlohmann::json& node, const Path& path, std::string_view what,
                    std::span<const std::string_view> choices);
int32_t read_dtype(const nlohmann::json& node, const Path& path);
void check_hex_float(const nlohmann::json& node, const Path& path);

template <class Item>
auto read_array(const nlohmann::json& node, const Path& path, Item item) {
  if (!node.is_array()) malformed("wrong type", path, describe(node), "an array");
  std::vector<decltype(item(node, path))> items;
  items.reserve(node.size());
  for (size_t i = 0; i < node.size(); ++i) items.push_back(item(node[i], Path(path, i)));
  return items;
}

inline std::vector<int64_t> read_integers(const nlohmann::json& node, const Path& path) {
  return read_array(node, path, [](const auto& n, const Path& p) { return read_integer(n, p); });
}

// An object with exactly `keys` (and `extra`, the key that held its tag). done() throws std::logic_error
// unless each key was read once: a key added to the schema cannot be forgotten here.
class ObjectReader {
 public:
  ObjectReader(const nlohmann::json& node, const Path& path, std::span<const std::string_view> keys,
               std::string_view extra = {});
  template <class F>
  auto read(std::string_view key, F reader) {
    ++reads_;
    return reader(node_[std::string(key)], Path(path_, key));
  }
  int64_t integer(std::string_view key) {
    return read(key, [](const auto& n, const Path& p) { return read_integer(n, p); });
  }
  std::string string(std::string_view key) { return read(key, read_string); }
  int32_t dtype(std::string_view key) { return read(key, read_dtype); }
  std::vector<int64_t> integers(std::string_view key) { return read(key, read_integers); }
  template <class Item>
  auto array(std::string_view key, Item item) {
    return read(key, [&](const auto& n, const Path& p) { return read_array(n, p, item); });
  }
  void done() const;

 private:
  const nlohmann::json& node_;
  const Path& path_;
  size_t keys_;
  size_t reads_ = 0;
};

// One case of a tagged union: its position in the names, the node that holds its fields and that node's path.
struct Case {
  size_t index;
  const nlohmann::json& node;
  Path path;
};

// {"kind": name, ...fields}
Case read_kind(const nlohmann::json& node, const Path& path, std::span<const std::string_view> names);
// {name: ...}; words says what else would be right ("" for nothing).
Case read_keyed(const nlohmann::json& node, const Path& path, std::span<const std::string_view> names,
                std::string_view words = {});
void check_true(const nlohmann::json& node, const Path& path);

}  // namespace dsv41c
