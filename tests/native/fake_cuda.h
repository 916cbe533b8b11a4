// A CUDA driver in host memory, for tests: it keeps every handle, call and graph, and runs work only when somebody
// waits for it, so that whatever needs a wait and does not wait shows.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fake {

using Result = int;
inline constexpr Result OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_CONTEXT = 201,
                        INVALID_HANDLE = 400, NOT_FOUND = 500;

// A function of a module: a line "symbol letters" of the image, a letter for each parameter: p pointer, l int64,
// i int32, f float, m tensor map.
struct Kernel {
  std::string symbol;
  std::string letters;
  unsigned shared_limit = 48 * 1024;
  int times_set = 0;
};

// What cuTensorMapEncodeTiled was given; a map's 128 bytes hold its number behind a magic word.
inline constexpr uint64_t MAP_MAGIC = 0x70616d726f736e74;
struct EncodedMap {
  int type = 0, interleave = 0, swizzle = 0, promotion = 0, fill = 0;
  uint64_t address = 0;
  std::vector<uint64_t> sizes, strides;
  std::vector<unsigned> box, steps;
};

// A kernel, or without one a copy ("copy": values are target, source, bytes) or a memset (target, value, bytes).
struct Node {
  const Kernel* kernel = nullptr;
  unsigned grid[3] = {}, block[3] = {}, shared = 0;
  std::vector<uint64_t> values;  // of a map its number
  std::vector<int> sources;
  std::string transfer;  // "copy" or "memset"
};

struct Module {
  std::vector<std::unique_ptr<Kernel>> kernels;
};
struct Graph {
  std::vector<Node> nodes;
};
struct Executable {
  std::vector<Node> nodes;
};
struct Event {
  int64_t moment = 0;  // number of the stream's last piece of work before it
};
struct Stream {
  std::deque<std::function<void()>> queue;
  int64_t enqueued = 0;
  int64_t executed = 0;
  Graph* capturing = nullptr;

  void run_until(int64_t moment);
};

struct World {
  int devices = 1, major = 9, minor = 0;
  int64_t memory = int64_t{1} << 30;
  int64_t calls = 0, fail_at = 0;
  Result fail_with = 999;
  std::map<const void*, std::string> live;  // kind of each handle
  std::map<const void*, int64_t> sizes;     // of device memory
  int retained = 0;
  std::vector<const void*> contexts;  // the thread's stack
  std::vector<std::string> log;       // names of calls
  std::vector<std::string> executed;  // symbols and copies in the order they ran
  std::vector<std::string> violations;
  std::vector<EncodedMap> maps;
  std::vector<std::string> graphs;  // JSON of each instantiated graph
  std::vector<Stream*> streams;
  int64_t graph_bytes = 0;

  int64_t used() const;
  bool is_idle() const;
  void enqueue(Stream* stream, std::function<void()> work);
};

World& world();
void run_node(const Node& node);  // fake_kernels.cc

}  // namespace fake
