// Resolves the locals of a sequence at one number of rows.
#include "sequence.h"

#include "error.h"
#include "regions.h"

namespace dsv41c {
namespace {

dsv41c_tensor shaped(const Local& local, const Symbols& symbols) {
  dsv41c_tensor tensor{};
  tensor.dtype = local.dtype;
  tensor.ndim = static_cast<int32_t>(local.sizes.size());
  for (size_t d = 0; d < local.sizes.size(); ++d) {
    tensor.sizes[d] = evaluate(local.sizes[d], symbols);
    tensor.strides[d] = evaluate(local.strides[d], symbols);
  }
  return tensor;
}

bool is_same_shape(const dsv41c_tensor& given, const dsv41c_tensor& needed) {
  if (given.ndim != needed.ndim || given.dtype != needed.dtype) return false;
  for (int d = 0; d < needed.ndim; ++d)
    if (given.sizes[d] != needed.sizes[d] || (needed.sizes[d] != 1 && given.strides[d] != needed.strides[d]))
      return false;
  return true;
}

std::string describe(const dsv41c_tensor& tensor) {
  if (tensor.ndim < 0) return "absent";
  std::string text(dtype_name(tensor.dtype));
  for (int d = 0; d < tensor.ndim; ++d)
    text += " " + std::to_string(tensor.sizes[d]) + ":" + std::to_string(tensor.strides[d]);
  return text + " (size:stride)";
}

}  // namespace

std::string LaunchPlace::text() const {
  return "method " + method->name + ", launch " + launch->name + ", " +
         (part == WHOLE ? "" : "part " + std::to_string(part) + ", ") + std::to_string(rows) + " rows";
}

SequenceTensors::SequenceTensors(const Plan& plan, const Kernel& sequence, const dsv41c_binding& launch,
                                 const LaunchPlace& place, std::string_view code)
    : plan_(plan),
      kernel_(sequence),
      launch_(launch),
      place_(place),
      code_(code),
      symbols_{{std::string(plan_format::ROWS), launch.rows}} {
  locals_.reserve(kernel_.locals.size());
  for (const Local& local : kernel_.locals) add(local);
}

void SequenceTensors::add(const Local& local) {
  switch (local.kind) {
    case LocalKind::arg:
      return add_argument(local);
    case LocalKind::temp: {
      arguments_.push_back(-1);
      return add_in_bytes(local, static_cast<uint8_t*>(launch_.scratch), evaluate(local.offset, symbols_),
                          launch_.scratch_bytes);
    }
    case LocalKind::view: {
      const dsv41c_tensor base = locals_[static_cast<size_t>(local.index)];
      arguments_.push_back(arguments_[static_cast<size_t>(local.index)]);
      return add_in_bytes(local, static_cast<uint8_t*>(base.data),
                          evaluate(local.offset, symbols_) * item_bytes(local.dtype), span_bytes(base));
    }
    case LocalKind::constant:
      break;  // not in a sequence
  }
}

// A template states what it was traced with; a launch that brings anything else is refused.
void SequenceTensors::add_argument(const Local& local) {
  dsv41c_tensor tensor = shaped(local, symbols_);
  const std::string name = "tensor " + std::to_string(local.index);
  if (local.index >= launch_.num_tensors) refuse(std::to_string(launch_.num_tensors) + " tensors", name);
  const dsv41c_tensor& given = launch_.tensors[local.index];
  if (!is_same_shape(given, tensor)) refuse(name + " is " + describe(given), describe(tensor));
  tensor.data = given.data;
  locals_.push_back(tensor);
  arguments_.push_back(local.index);
}

void SequenceTensors::add_in_bytes(const Local& local, uint8_t* base, int64_t offset, int64_t bytes) {
  dsv41c_tensor tensor = shaped(local, symbols_);
  const int64_t end = offset + span_bytes(tensor);
  if (offset < 0 || end > bytes)
    refuse("local " + std::to_string(locals_.size()) + " at bytes " + std::to_string(offset) + " to " +
               std::to_string(end),
           "an end of at most " + std::to_string(bytes));
  tensor.data = base + offset;
  locals_.push_back(tensor);
}

dsv41c_binding SequenceTensors::part(size_t index) {
  const Part& part = kernel_.parts[index];
  tensors_.clear();
  for (const Argument& argument : part.tensors) {
    dsv41c_tensor absent{};
    absent.ndim = -1;
    tensors_.push_back(argument.kind == ArgumentKind::none ? absent : local(argument.value));
  }
  dsv41c_binding binding = launch_;
  binding.tensors = tensors_.data();
  binding.num_tensors = static_cast<int32_t>(tensors_.size());
  const Kernel& kernel = plan_.kernels[static_cast<size_t>(part.kernel)];
  const int64_t offset = evaluate(part.scratch, symbols_), bytes = evaluate(kernel.scratch_bytes, symbols_);
  if (bytes > launch_.scratch_bytes - offset)
    refuse("scratch of part " + std::to_string(index) + ", " + std::to_string(bytes) + " bytes at " +
               std::to_string(offset),
           "an end of at most " + std::to_string(launch_.scratch_bytes));
  binding.scratch = bytes > 0 ? static_cast<uint8_t*>(launch_.scratch) + offset : nullptr;
  binding.scratch_bytes = bytes;
  return binding;
}

void SequenceTensors::refuse(std::string found, std::string needed) const {
  throw Error({.code = code_,
               .subject = "kernel " + kernel_.op + " cannot be bound",
               .where = place_.text(),
               .found = std::move(found),
               .needed = std::move(needed),
               .action = "compile the artifact with the installed version"});
}

}  // namespace dsv41c
