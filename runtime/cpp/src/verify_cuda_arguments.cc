// Rules of the tensors that a CUDA body is given, by a launch or by a sequence: those that its nodes name are there,
// large enough and writable.
#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

class CudaArgumentRules {
 public:
  CudaArgumentRules(const std::vector<Argument>& tensors, const std::vector<int64_t>& points, const std::string& symbol,
                    const std::function<Operand(int64_t)>& operand, const Where& where)
      : tensors_(tensors), points_(points), symbol_(symbol), operand_(operand), where_(where) {}

  void check(const Kernel& kernel) {
    for (const CudaLaunch& node : kernel.launches) {
      const std::vector<int64_t> tensors = tensors_of(node);
      for (int64_t index : tensors) check_index(index, tensors_.size(), "argument", where_);
      if (node.kind != NodeKind::kernel) {
        check_transfer(node, tensors);
        continue;
      }
      for (const Param& param : node.params)
        if (param.kind == ParamKind::tensor_map && param.is_tensor()) check_map(param);
      named_.insert(tensors.begin(), tensors.end());
    }
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (tensors_[i].kind == ArgumentKind::out && !named_.contains(static_cast<int64_t>(i)))
        broken("out is no parameter", where_, argument(static_cast<int64_t>(i)), "a parameter that points to it");
  }

 private:
  static std::vector<int64_t> tensors_of(const CudaLaunch& node) {
    std::vector<int64_t> tensors;
    const auto add = [&](const Param& param) {
      if (param.is_tensor()) tensors.push_back(param.tensor);
    };
    if (node.kind == NodeKind::kernel)
      for (const Param& param : node.params) add(param);
    else
      add(node.target);
    if (node.kind == NodeKind::copy) add(node.source);
    return tensors;
  }

  void check_map(const Param& param) const {
    const Operand found = tensor(param.tensor);
    for (size_t i = 0; i < points_.size(); ++i) {
      check_size(param.tensor, found, i, map_span(param.map, symbols(i), where_));
      check_map_address(param.map, found.ranges[i].begin, where_);
    }
  }

  // A copy reads no output that nothing has written, and no input is written.
  void check_transfer(const CudaLaunch& node, const std::vector<int64_t>& tensors) {
    if (node.kind == NodeKind::copy && node.source.is_tensor() && !named_.contains(node.source.tensor) &&
        tensors_[static_cast<size_t>(node.source.tensor)].kind == ArgumentKind::out)
      broken("out is not written first", where_, argument(node.source.tensor), "a body that writes it before reading");
    if (node.target.is_tensor()) {
      named_.insert(node.target.tensor);
      if (tensors_[static_cast<size_t>(node.target.tensor)].kind == ArgumentKind::in)
        broken("body writes an input", where_, argument(node.target.tensor), "out or inout");
    }
    for (int64_t index : tensors) {
      const Operand found = tensor(index);
      for (size_t i = 0; i < points_.size(); ++i)
        check_size(index, found, i, evaluate_extent(node.bytes, symbols(i), where_));
    }
  }

  Operand tensor(int64_t index) const {
    const Argument& found = tensors_[static_cast<size_t>(index)];
    if (found.kind == ArgumentKind::none) broken("body uses an absent argument", where_, argument(index), "a tensor");
    return operand_(found.value);
  }

  void check_size(int64_t index, const Operand& found, size_t point, int64_t needed) const {
    const int64_t size = found.ranges[point].size();
    if (needed > size)
      broken("argument is too small", where_, argument(index) + ", " + std::to_string(size) + " bytes",
             std::to_string(needed) + " bytes at " + symbol_ + " = " + std::to_string(points_[point]));
  }

  Symbols symbols(size_t point) const { return {{std::string(plan_format::ROWS), points_[point]}}; }
  static std::string argument(int64_t index) { return "argument " + std::to_string(index); }

  const std::vector<Argument>& tensors_;
  const std::vector<int64_t>& points_;
  const std::string& symbol_;
  const std::function<Operand(int64_t)>& operand_;
  const Where& where_;
  std::set<int64_t> named_;
};

}  // namespace

void check_cuda_arguments(const Kernel& kernel, const std::vector<Argument>& tensors,
                          const std::vector<int64_t>& points, const std::string& symbol,
                          const std::function<Operand(int64_t)>& operand, const Where& where) {
  CudaArgumentRules(tensors, points, symbol, operand, where).check(kernel);
}

}  // namespace dsv41c::verifier
