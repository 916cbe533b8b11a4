// Resolves the input ports of a method and binds its buckets.
#include "loaded_method.h"

#include <algorithm>
#include <set>

#include "dsv41c/plan_generated.h"
#include "error.h"

namespace dsv41c {
namespace {

struct SourceName {
  const char* port;
  const char* axis;
  InputSource source;
};
// An input port is named after the list of the step's inputs that fills it, and that list is the method's axis.
constexpr SourceName SOURCES[] = {
    {"upload", "rows", InputSource::upload},
    {"upload", "groups", InputSource::upload},
    {"keep_rows", "kept_rows", InputSource::keep_rows},
    {"logit_rows", "output_rows", InputSource::logit_rows},
};

[[noreturn]] void refuse(const Method& method, const std::string& found, const std::string& needed) {
  throw Error({.code = plan_format::E0703,
               .subject = "inputs of method " + method.name,
               .found = found,
               .needed = needed,
               .action = "compile the artifact with the installed version"});
}

InputSource source_of_axis(const Method& method) {
  for (const SourceName& s : SOURCES)
    if (method.axis == s.axis) return s.source;
  refuse(method, "axis " + method.axis, "axis rows, groups, kept_rows or output_rows");
}

InputPort input_port(const Method& method, const Port& port, InputSource axis, const Regions& regions,
                     const Symbols& symbols, int64_t* staging_bytes) {
  const SourceName* named = std::ranges::find_if(SOURCES, [&](const SourceName& s) { return port.name == s.port; });
  if (named == std::end(SOURCES) || named->source != axis)
    refuse(method, "port " + port.name + " on axis " + method.axis,
           "port upload on axis rows or groups, keep_rows on kept_rows or logit_rows on output_rows");
  const size_t columns = axis == InputSource::upload ? 5 : 1;
  const dsv41c_tensor t = regions.tensor(method, port.value, symbols);
  if (t.dtype != DSV41C_INT32 || port.pad.size() != columns)
    refuse(method,
           "port " + port.name + " of dtype " + std::string(dtype_name(t.dtype)) + " with " +
               std::to_string(port.pad.size()) + " columns",
           "int32 with " + std::to_string(columns) + " columns");
  const int64_t staging = *staging_bytes;
  int64_t bytes = span_bytes(t);
  // Replays of one step stage one behind another; only the first has pads, fewer than the largest bucket's rows.
  if (method.ladder.splits()) bytes += method.buckets.back() * static_cast<int64_t>(columns * sizeof(int32_t));
  *staging_bytes += (bytes + plan_format::ALIGNMENT - 1) / plan_format::ALIGNMENT * plan_format::ALIGNMENT;
  return {named->source, static_cast<int32_t*>(t.data), staging,
          std::vector<int32_t>(port.pad.begin(), port.pad.end())};
}

const int32_t* list_of(const dsv41c_step_inputs& inputs, InputSource source) {
  switch (source) {
    case InputSource::upload:
      return inputs.upload;
    case InputSource::keep_rows:
      return inputs.keep_rows;
    case InputSource::logit_rows:
      return inputs.logit_rows;
  }
  return nullptr;
}

// Of a method that may be split: the verifier has seen that their rows lie one behind the other.
std::vector<OutgoingBridge> outgoing_bridges(const Method& method, const Regions& regions, const Symbols& bound) {
  std::set<int64_t> written;  // values that are no views
  for (const Step& step : method.steps)
    for (const Launch& launch : step.launches)
      for (const Argument& argument : launch.tensors) {
        if (argument.kind != ArgumentKind::out && argument.kind != ArgumentKind::inout) continue;
        int64_t root = argument.value;
        while (method.values[static_cast<size_t>(root)].storage.kind == StorageKind::view)
          root = method.values[static_cast<size_t>(root)].storage.index;
        written.insert(root);
      }
  std::vector<OutgoingBridge> bridges;
  for (int64_t index : written) {
    if (method.values[static_cast<size_t>(index)].storage.kind != StorageKind::bridge) continue;
    const dsv41c_tensor t = regions.tensor(method, index, bound);
    bridges.push_back({static_cast<uint8_t*>(t.data), span_bytes(t) / t.sizes[0]});
  }
  return bridges;
}

}  // namespace

LoadedMethod::LoadedMethod(const Method& method, int64_t max_rows, Backend& backend, int64_t* staging_bytes)
    : method_(method), max_rows_(max_rows), backend_(backend), axis_(source_of_axis(method)) {
  const Symbols bound{{method.symbol, max_rows}};
  for (const Port& port : method.inputs)
    inputs_.push_back(input_port(method, port, axis_, backend.regions(), bound, staging_bytes));
  if (method.ladder.splits()) outgoing_ = outgoing_bridges(method, backend.regions(), bound);
}

void LoadedMethod::bind_buckets() {
  for (int64_t rows : method_.buckets) buckets_.push_back(backend_.bind(method_, rows, Binding::bucket));
}

const BoundMethod* LoadedMethod::least_bucket(int64_t rows) const {
  for (const auto& bucket : buckets_)
    if (bucket->rows() >= rows) return bucket.get();
  return nullptr;
}

int64_t LoadedMethod::rows_of(const dsv41c_step_inputs& inputs) const {
  switch (axis_) {
    case InputSource::upload:
      return inputs.num_rows;
    case InputSource::keep_rows:
      return inputs.num_keep;
    case InputSource::logit_rows:
      return inputs.num_logit_rows;
  }
  return 0;
}

void LoadedMethod::write_inputs(const dsv41c_step_inputs& inputs, const InputRows& rows) const {
  for (const InputPort& port : inputs_) backend_.write_input(port, list_of(inputs, port.source), rows);
  backend_.inputs_written();
}

void LoadedMethod::move_bridge_rows(int64_t count, int64_t to) const {
  for (const OutgoingBridge& bridge : outgoing_)
    backend_.copy_rows(bridge.data + to * bridge.row_bytes, bridge.data, count * bridge.row_bytes);
}

}  // namespace dsv41c
