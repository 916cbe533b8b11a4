// The kernels that the fake driver runs on the host; any other symbol is only recorded.
#include <algorithm>
#include <bit>
#include <cstring>

#include "fake_cuda.h"

namespace fake {
namespace {

float as_float(uint64_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
template <class T>
T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// upload, slot_position, page_table, x; rows, pages_per_slot, block_size: the state of row_table, x = token
void test_rows(const std::vector<uint64_t>& v) {
  const auto* upload = at<const int32_t>(v[0]);
  int32_t *position = at<int32_t>(v[1]), *pages = at<int32_t>(v[2]);
  auto* x = at<float>(v[3]);
  const auto rows = static_cast<int64_t>(v[4]), width = static_cast<int64_t>(v[5]), block = static_cast<int64_t>(v[6]);
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t* row = upload + 5 * r;
    x[r] = static_cast<float>(row[2]);
    if (row[3] & 4) continue;
    if (row[1] == 0 && (row[3] & 1)) position[row[0]] = 0;
    const int32_t here = position[row[0]]++;
    if (row[4] >= 0) pages[row[0] * width + here / block] = row[4];
  }
}

// a, b, out, n
void test_add(const std::vector<uint64_t>& v) {
  for (uint64_t i = 0; i < v[3]; ++i) at<float>(v[2])[i] = at<float>(v[0])[i] + (v[1] ? at<float>(v[1])[i] : 1000);
}
// in, out, n, factor
void test_scale(const std::vector<uint64_t>& v) {
  for (uint64_t i = 0; i < v[2]; ++i) at<float>(v[1])[i] = at<float>(v[0])[i] * as_float(v[3]);
}
// state, n
void test_count(const std::vector<uint64_t>& v) {
  for (uint64_t i = 0; i < v[1]; ++i) at<int32_t>(v[0])[i] += 1;
}
// map of in (float32, one dimension), out, n: also where the map ends, elements are 0
void test_mapped(const std::vector<uint64_t>& v) {
  const EncodedMap& map = world().maps[v[0]];
  for (uint64_t i = 0; i < v[2]; ++i) at<float>(v[1])[i] = i < map.sizes[0] ? at<float>(map.address)[i] : 0.0f;
}
// in, weight, logits, rows, columns
void test_head(const std::vector<uint64_t>& v) {
  for (uint64_t r = 0; r < v[3]; ++r)
    for (uint64_t c = 0; c < v[4]; ++c) at<float>(v[2])[r * v[4] + c] = at<float>(v[0])[r] * at<float>(v[1])[c];
}

// in, index, out, n: -1 takes nothing
void test_take(const std::vector<uint64_t>& v) {
  const auto* index = at<const int32_t>(v[1]);
  for (uint64_t i = 0; i < v[3]; ++i) at<float>(v[2])[i] = index[i] < 0 ? -1.0f : at<float>(v[0])[index[i]];
}

struct HostKernel {
  const char* symbol;
  void (*run)(const std::vector<uint64_t>& values);
};
constexpr HostKernel HOST_KERNELS[] = {
    {"test_rows", test_rows},     {"test_add", test_add},   {"test_scale", test_scale}, {"test_count", test_count},
    {"test_mapped", test_mapped}, {"test_head", test_head}, {"test_take", test_take}};

}  // namespace

void run_node(const Node& node) {
  const std::vector<uint64_t>& v = node.values;
  if (!node.transfer.empty()) world().executed.push_back(node.transfer);
  if (node.transfer == "copy") std::memcpy(at<char>(v[0]), at<char>(v[1]), v[2]);
  if (node.transfer == "memset") std::memset(at<char>(v[0]), static_cast<int>(v[1]), v[2]);
  if (!node.kernel) return;
  world().executed.push_back(node.kernel->symbol);
  for (const HostKernel& kernel : HOST_KERNELS)
    if (node.kernel->symbol == kernel.symbol) kernel.run(node.values);
}

}  // namespace fake
