// A host with its own operator new: each block carries a mark, and deleting a block without it ends the process.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "dsv41c/executor.h"

namespace {

constexpr uint64_t MARK = 0x64737634316B6E6F;
constexpr size_t HEADER = 64;  // keeps the alignment of what follows
int64_t live = 0, made = 0;

void* mark(size_t size, size_t alignment) {
  const size_t header = alignment > HEADER ? alignment : HEADER;
  auto* base = static_cast<char*>(std::aligned_alloc(header, (size + 2 * header - 1) / header * header));
  auto* block = base + header;
  reinterpret_cast<uint64_t*>(block)[-1] = MARK;
  reinterpret_cast<char**>(block)[-2] = base;
  ++live;
  ++made;
  return block;
}

void unmark(void* block) {
  if (!block) return;
  uint64_t& found = reinterpret_cast<uint64_t*>(block)[-1];
  if (found != MARK) {
    std::fputs("deleted a block that this host's operator new did not make\n", stderr);
    std::_Exit(3);
  }
  found = 0;
  --live;
  std::free(reinterpret_cast<char**>(block)[-2]);
}

}  // namespace

void* operator new(size_t size) { return mark(size, 1); }
void* operator new[](size_t size) { return mark(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) { return mark(size, static_cast<size_t>(alignment)); }
void* operator new[](size_t size, std::align_val_t alignment) { return mark(size, static_cast<size_t>(alignment)); }
void operator delete(void* block) noexcept { unmark(block); }
void operator delete[](void* block) noexcept { unmark(block); }
void operator delete(void* block, size_t) noexcept { unmark(block); }
void operator delete[](void* block, size_t) noexcept { unmark(block); }
void operator delete(void* block, std::align_val_t) noexcept { unmark(block); }
void operator delete[](void* block, std::align_val_t) noexcept { unmark(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { unmark(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept { unmark(block); }

// Opens each path in turn, and prints what the library says it has allocated, and what this host has seen.
int main(int count, char** arguments) {
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::fputs(dlerror(), stderr), 2;
  const auto open = reinterpret_cast<decltype(&dsv41c_open)>(dlsym(library, "dsv41c_open"));
  const auto close = reinterpret_cast<decltype(&dsv41c_close)>(dlsym(library, "dsv41c_close"));
  const auto allocations =
      reinterpret_cast<decltype(&dsv41c_heap_allocations)>(dlsym(library, "dsv41c_heap_allocations"));
  for (int i = 2; i < count; ++i) {
    const int64_t counted = allocations(), seen = made, before = live;
    char text[4096] = "";
    dsv41c_error error{text, sizeof text};
    dsv41c_executor* executor = nullptr;
    const int32_t status = open(arguments[i], nullptr, &executor, &error);
    close(executor);
    std::printf("{\"status\":%d,\"counted\":%lld,\"seen\":%lld,\"left\":%lld,\"error\":%s}\n", status,
                static_cast<long long>(allocations() - counted), static_cast<long long>(made - seen),
                static_cast<long long>(live - before), status ? text : "null");
  }
}
