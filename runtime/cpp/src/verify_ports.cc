// Rules of the host's side of a method: ports, their pad rows, and io ranges of methods that run together.
#include <algorithm>

#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

// Elements in one row; 0 for a value without rows. Sizes after the first are constant and their product is bounded.
int64_t columns_of(const Value& value, const std::string& symbol) {
  if (value.sizes.empty() || !reads_symbol(value.sizes[0], symbol)) return 0;
  int64_t columns = 1;
  for (size_t i = 1; i < value.sizes.size(); ++i) columns *= evaluate(value.sizes[i], {});
  return columns;
}

void check_port(const Method& method, const Port& port, const std::string& what) {
  const auto where = [&] { return "method " + method.name + ", " + what + " " + port.name; };
  check_index(port.value, method.values.size(), "value", where);
  const Value& value = method.values[port.value];
  if (value.storage.kind != StorageKind::io)
    broken("port outside io", where, value_place(method, port.value), "a value with io storage");
  for (size_t i = 1; i < value.sizes.size(); ++i)
    if (reads_symbol(value.sizes[i], method.symbol))
      broken("port columns are not constant", where, value_place(method, port.value), "constant sizes after the first");
  const int64_t columns = what == "input" ? columns_of(value, method.symbol) : 0;
  if (static_cast<int64_t>(port.pad.size()) != columns)
    broken("pad row of the wrong length", where, std::to_string(port.pad.size()) + " numbers",
           std::to_string(columns) + " numbers");
}

struct Entry {
  const Method* method;
  int64_t value;
  Range range;
};

std::vector<Entry> io_entries(const Method& method, const std::vector<Placed>& placed) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < placed.size(); ++i)
    if (placed[i].root == static_cast<int64_t>(i) && placed[i].storage->kind == StorageKind::io)
      entries.push_back({&method, static_cast<int64_t>(i), placed[i].hi()});
  return entries;
}

void check_disjoint(std::vector<Entry> entries) {
  std::ranges::stable_sort(entries, {}, [](const Entry& entry) { return entry.range.begin; });
  for (size_t i = 1; i < entries.size(); ++i) {
    const Entry &before = entries[i - 1], &entry = entries[i];
    if (before.range.overlaps(entry.range))
      broken("ranges overlap", value_place(*entry.method, entry.value), entry.range.text(),
             "no byte of " + value_place(*before.method, before.value) + " at " + before.range.text());
  }
}

}  // namespace

void check_ports(const Method& method) {
  const auto name_of = [](const Port& port) { return port.name; };
  for (const auto& [what, ports] : {std::pair("input", &method.inputs), std::pair("output", &method.outputs)}) {
    check_unique(*ports, name_of, "method " + method.name + ", " + what);
    for (const Port& port : *ports) check_port(method, port, what);
  }
}

void check_io(const Plan& plan, const std::vector<std::vector<Placed>>& placed) {
  std::map<std::string, std::vector<Entry>> entries;
  for (size_t i = 0; i < plan.methods.size(); ++i)
    entries[plan.methods[i].name] = io_entries(plan.methods[i], placed[i]);
  for (const Method& method : plan.methods) check_disjoint(entries[method.name]);
  for (const Flow& flow : plan.flows) {
    std::vector<Entry> together;
    for (const std::string& name : flow.methods)
      together.insert(together.end(), entries[name].begin(), entries[name].end());
    check_disjoint(std::move(together));
  }
}

}  // namespace dsv41c::verifier
