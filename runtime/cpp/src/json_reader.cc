#include "json_reader.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {

using nlohmann::json;

namespace {

bool fits_int64(const json& node) {
  return node.is_number_integer() &&
         (!node.is_number_unsigned() || node.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
}

std::string describe_string(const std::string& text) {
  // Characters, not bytes: UTF-8 continuation bytes start with the bits 10.
  const auto characters = std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
  return characters <= 40 ? "\"" + text + "\"" : "a string of " + std::to_string(characters) + " characters";
}

std::string_view skip(std::string_view text, std::string_view allowed) {
  text.remove_prefix(std::min(text.find_first_not_of(allowed), text.size()));
  return text;
}

// -?(0x[0-9a-f]\.[0-9a-f]+p[+-][0-9]+|inf)|nan, as Python's float.hex() writes it.
bool is_hex_float(std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  if (text == "nan") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text == "inf") return true;
  if (!text.starts_with("0x") || text.size() < 4 || hex.find(text[2]) == hex.npos || text[3] != '.') return false;
  const std::string_view fraction = text.substr(4), tail = skip(fraction, hex);
  if (tail.size() == fraction.size() || tail.size() < 3 || tail[0] != 'p') return false;
  return (tail[1] == '+' || tail[1] == '-') && skip(tail.substr(2), "0123456789").empty();
}

}  // namespace

std::string Path::text() const {
  if (!parent_) return std::string(key_);
  std::string text = parent_->text();
  if (index_ >= 0) return text.append("[").append(std::to_string(index_)).append("]");
  return text.append(".").append(key_);
}

std::string describe(const json& node) {
  switch (node.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::boolean:
      return node.get<bool>() ? "true" : "false";
    case json::value_t::string:
      return describe_string(node.get_ref<const std::string&>());
    case json::value_t::array:
      return "an array of " + std::to_string(node.size());
    case json::value_t::object:
      return "an object of " + std::to_string(node.size()) + " keys";
    case json::value_t::number_integer:
      return "integer " + std::to_string(node.get<int64_t>());
    case json::value_t::number_unsigned:
      return fits_int64(node) ? "integer " + std::to_string(node.get<uint64_t>()) : "an integer outside int64";
    default:
      return "a floating point number";
  }
}

std::string join(std::span<const std::string_view> words) {
  std::string text;
  for (std::string_view word : words) text.append(text.empty() ? "" : " ").append(word);
  return text;
}

void malformed(std::string subject, const Path& path, std::string found, std::string needed) {
  throw Error({.code = plan_format::E0501,
               .subject = std::move(subject),
               .where = path.text(),
               .found = std::move(found),
               .needed = std::move(needed),
               .action = "rebuild the plan with this version of dsv41c"});
}

int64_t read_integer(const json& node, const Path& path, std::string_view words) {
  if (!node.is_number_integer()) malformed("wrong type", path, describe(node), std::string(words));
  if (!fits_int64(node)) malformed("integer outside int64", path, describe(node), "an int64");
  return node.get<int64_t>();
}

int64_t strict_integer(const json& node) {
  if (!fits_int64(node)) throw json::type_error::create(302, "needed an int64, found " + describe(node), &node);
  return node.get<int64_t>();
}

std::vector<int64_t> strict_integers(const json& node) {
  if (!node.is_array()) throw json::type_error::create(302, "needed an array, found " + describe(node), &node);
  std::vector<int64_t> integers;
  for (const json& item : node) integers.push_back(strict_integer(item));
  return integers;
}

std::string read_string(const json& node, const Path& path) {
  if (!node.is_string()) malformed("wrong type", path, describe(node), "a string");
  return node.get<std::string>();
}

int64_t read_choice(const json& node, const Path& path, std::string_view what,
                    std::span<const std::string_view> choices) {
  const std::string text = read_string(node, path);
  const auto found = std::ranges::find(choices, text);
  if (found == choices.end())
    malformed("unknown " + std::string(what), path, describe(node), "one of: " + join(choices));
  return found - choices.begin();
}

int32_t read_dtype(const json& node, const Path& path) {
  std::vector<std::string_view> names;
  for (const auto& dtype : plan_format::DTYPES) names.push_back(dtype.name);
  return plan_format::DTYPES[read_choice(node, path, "dtype", names)].code;
}

void check_hex_float(const json& node, const Path& path) {
  if (!is_hex_float(read_string(node, path)))
    malformed("not a hex float", path, describe(node), "a float as 0x1.8p+0, inf, -inf or nan");
}

ObjectReader::ObjectReader(const json& node, const Path& path, std::span<const std::string_view> keys,
                           std::string_view extra)
    : node_(node), path_(path), keys_(keys.size()) {
  if (!node.is_object()) malformed("wrong type", path, describe(node), "an object");
  for (const auto& [key, value] : node.items())
    if (std::ranges::find(keys, key) == keys.end() && key != extra)
      malformed("unknown key", Path(path, key), key, "one of: " + join(keys));
  for (std::string_view key : keys)
    if (!node.contains(key)) malformed("missing key", path, "no key " + std::string(key), "keys: " + join(keys));
}

void ObjectReader::done() const {
  if (reads_ != keys_) throw std::logic_error("the parser leaves a key unread at " + path_.text());
}

Case read_kind(const json& node, const Path& path, std::span<const std::string_view> names) {
  if (node.is_object() && node.contains("kind") && node["kind"].is_string()) {
    const auto found = std::ranges::find(names, node["kind"].get_ref<const std::string&>());
    if (found != names.end()) return {static_cast<size_t>(found - names.begin()), node, path};
  }
  malformed("unknown case", path, describe(node), "an object with kind one of " + join(names));
}

Case read_keyed(const json& node, const Path& path, std::span<const std::string_view> names, std::string_view words) {
  if (node.is_object() && node.size() == 1) {
    const auto found = std::ranges::find(names, node.begin().key());
    if (found != names.end()) return {static_cast<size_t>(found - names.begin()), node.front(), Path(path, *found)};
  }
  const std::string keyed = "an object with one key of " + join(names);
  malformed("unknown case", path, describe(node), words.empty() ? keyed : std::string(words) + " or " + keyed);
}

void check_true(const json& node, const Path& path) {
  if (!node.is_boolean() || !node.get<bool>()) malformed("wrong type", path, describe(node), "true");
}

}  // namespace dsv41c
