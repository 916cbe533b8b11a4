// Opens artifacts through the C interface and runs steps on each, in a build with sanitizers: what may happen is a
// refusal or a clean run. `sanitized_host` reads lines "path TAB verify_full TAB checkpoint" from stdin and answers
// each with one line of JSON; a report of a sanitizer ends the process.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "dsv41c/executor.h"
#include "guarded_kernels.h"

namespace {

using Json = nlohmann::json;

constexpr int32_t START = 1;

struct Answer {
  int32_t status = 0;
  std::string text = std::string(16384, '\0');
  dsv41c_error error{text.data(), static_cast<int64_t>(text.size())};
  Json json() const { return status == 0 ? Json(nullptr) : Json::parse(text.c_str()); }
};

struct Shape {
  int64_t slots, pages_per_slot, block_size, positions;
  int32_t pages;
};

// What the report does not know is anything.
Shape shape_of(dsv41c_executor* executor) {
  const Json limits = Json::parse(dsv41c_report(executor)).at("limits");
  const auto number = [&](const char* name, int64_t otherwise) {
    return limits.at(name).is_null() ? otherwise : limits.at(name).get<int64_t>();
  };
  return {number("slots", 3), number("pages_per_slot", 1), number("block_size", 8), number("positions", 16),
          static_cast<int32_t>(number("pages", 4))};
}

class Steps {
 public:
  Steps(dsv41c_executor* executor, Shape shape) : executor_(executor), shape_(shape) {}

  // `count` rows of a slot from position `base` on. Slots share the pages out among them.
  void add(int64_t slot, int64_t base, int64_t count) {
    for (int64_t i = 0; i < count && base + i < shape_.positions; ++i) {
      const int64_t logical = (base + i) / shape_.block_size;
      const bool opens = (base + i) % shape_.block_size == 0 || i == 0;
      const int64_t page = slot * shape_.pages / std::max<int64_t>(shape_.slots, 1) + logical;
      upload_.insert(upload_.end(), {static_cast<int32_t>(slot), static_cast<int32_t>(i),
                                     base > 0 && i == 0 ? -1 : static_cast<int32_t>((slot + base + i) % 7),
                                     base == 0 ? START : 0, opens ? static_cast<int32_t>(page) : -1});
    }
  }

  // Only the rows in `logits` give logits; all of them where it is empty.
  void run(std::vector<int32_t> logits, bool eager) {
    const auto rows = static_cast<int64_t>(upload_.size() / 5);
    if (rows == 0) return;
    std::vector<int32_t> keep;
    for (int32_t i = 0; i < rows; ++i) keep.push_back(i);
    if (logits.empty()) logits = keep;
    const dsv41c_step_inputs inputs{
        upload_.data(), rows, keep.data(), rows, logits.data(), static_cast<int64_t>(logits.size()), eager, 0};
    Answer answer;
    answer.status = dsv41c_step(executor_, &inputs, &answer.error);
    if (answer.status != 0)
      refusals.push_back(answer.json());
    else
      read("tokens"), read("logits");
    upload_.clear();
  }

  Json refusals = Json::array();

 private:
  void read(const char* name) {
    Answer answer;
    dsv41c_tensor tensor{};
    answer.status = dsv41c_output(executor_, name, &tensor, &answer.error);
    if (answer.status != 0) return;
    const auto* bytes = static_cast<const volatile char*>(tensor.data);
    for (int64_t i = 0; i < 4 * tensor.sizes[0]; ++i) static_cast<void>(bytes[i]);
  }

  dsv41c_executor* executor_;
  Shape shape_;
  std::vector<int32_t> upload_;
};

Json run_steps(dsv41c_executor* executor) {
  const Shape shape = shape_of(executor);
  Steps steps(executor, shape);
  const int64_t chunk = std::min<int64_t>(shape.positions - 2, 11), other = shape.slots - 1;
  steps.add(0, 0, chunk);
  steps.run({static_cast<int32_t>(chunk - 1)}, false);
  steps.add(0, chunk, 1);
  steps.run({}, false);
  if (other > 0) {
    steps.add(0, chunk + 1, 1);
    steps.add(other, 0, 2);
    steps.run({2}, true);
  }
  steps.add(std::max<int64_t>(other, 0), 0, 1);
  steps.run({}, true);
  return steps.refusals;
}

Json answer_of(const std::string& path, bool verify_full, const std::string& checkpoint) {
  const dsv41c_provider* providers[] = {guarded::native_provider(dsv41c_cpu_provider()), guarded::stub_aten_provider()};
  dsv41c_load_options options{};
  options.verify_full = verify_full;
  options.num_providers = 2;
  options.providers = providers;
  if (!checkpoint.empty()) options.weights = checkpoint.c_str();
  Answer answer;
  dsv41c_executor* executor = nullptr;
  answer.status = dsv41c_open(path.c_str(), &options, &executor, &answer.error);
  if (answer.status != 0) return {{"refused", answer.json()}, {"steps", nullptr}};
  const Json refusals = run_steps(executor);
  dsv41c_close(executor);
  return {{"refused", nullptr}, {"steps", refusals}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream fields(line);
    std::string path, verify_full, checkpoint;
    std::getline(fields, path, '\t');
    std::getline(fields, verify_full, '\t');
    std::getline(fields, checkpoint);
    std::cout << answer_of(path, verify_full == "1", checkpoint).dump(-1, ' ', true) << std::endl;
  }
}
