// Rules of one launch with a CUDA body: the tensors that its nodes name are there, large enough and writable.
#include "verify_rules.h"

namespace dsv41c::verifier {

namespace {

class CudaLaunchRules {
 public:
  CudaLaunchRules(const Method& method, const Symbol& symbol, const Launch& launch, const std::vector<Placed>& placed,
                  const Where& where)
      : points_(points_of(method, symbol)), symbol_(symbol), launch_(launch), placed_(placed), where_(where) {}

  void check(const Kernel& kernel) {
    for (const CudaLaunch& node : kernel.launches) {
      const std::vector<int64_t> tensors = tensors_of(node);
      for (int64_t index : tensors) check_index(index, launch_.tensors.size(), "argument", where_);
      if (node.kind != NodeKind::kernel) {
        check_transfer(node, tensors);
        continue;
      }
      for (const Param& param : node.params)
        if (param.kind == ParamKind::tensor_map && param.is_tensor()) check_map(param);
      named_.insert(tensors.begin(), tensors.end());
    }
    for (size_t i = 0; i < launch_.tensors.size(); ++i)
      if (launch_.tensors[i].kind == ArgumentKind::out && !named_.contains(static_cast<int64_t>(i)))
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
    for (size_t i = 0; i < points_.size(); ++i) {
      const Range& found = tensor(param.tensor, i);
      check_size(param.tensor, i, map_span(param.map, symbols(i), where_));
      check_map_address(param.map, found.begin, where_);
    }
  }

  // A copy reads no output that nothing has written, and no input is written.
  void check_transfer(const CudaLaunch& node, const std::vector<int64_t>& tensors) {
    if (node.kind == NodeKind::copy && node.source.is_tensor() && !named_.contains(node.source.tensor) &&
        launch_.tensors[static_cast<size_t>(node.source.tensor)].kind == ArgumentKind::out)
      broken("out is not written first", where_, argument(node.source.tensor), "a body that writes it before reading");
    if (node.target.is_tensor()) {
      named_.insert(node.target.tensor);
      if (launch_.tensors[static_cast<size_t>(node.target.tensor)].kind == ArgumentKind::in)
        broken("body writes an input", where_, argument(node.target.tensor), "out or inout");
    }
    for (size_t i = 0; i < points_.size(); ++i) {
      const int64_t needed = evaluate_extent(node.bytes, symbols(i), where_);
      for (int64_t index : tensors) check_size(index, i, needed);
    }
  }

  const Range& tensor(int64_t index, size_t point) const {
    const Argument& found = launch_.tensors[static_cast<size_t>(index)];
    if (found.kind == ArgumentKind::none) broken("body uses an absent argument", where_, argument(index), "a tensor");
    return placed_[static_cast<size_t>(found.value)].ranges[point];
  }

  void check_size(int64_t index, size_t point, int64_t needed) const {
    const int64_t size = tensor(index, point).size();
    if (needed > size)
      broken("argument is too small", where_, argument(index) + ", " + std::to_string(size) + " bytes",
             std::to_string(needed) + " bytes at " + symbol_.name + " = " + std::to_string(points_[point]));
  }

  Symbols symbols(size_t point) const { return {{std::string(plan_format::ROWS), points_[point]}}; }
  static std::string argument(int64_t index) { return "argument " + std::to_string(index); }

  const std::vector<int64_t> points_;
  const Symbol& symbol_;
  const Launch& launch_;
  const std::vector<Placed>& placed_;
  const Where& where_;
  std::set<int64_t> named_;
};

}  // namespace

void check_cuda_launch(const Kernel& kernel, const Method& method, const Symbol& symbol, const Launch& launch,
                       const std::vector<Placed>& placed, const Where& where) {
  CudaLaunchRules(method, symbol, launch, placed, where).check(kernel);
}

}  // namespace dsv41c::verifier
