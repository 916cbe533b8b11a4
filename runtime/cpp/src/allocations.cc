// operator new of this library only: counts, so that a test can prove that a bucketed step allocates nothing.
#include "allocations.h"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

// Hidden at the symbol level: calls from inside this library come here, nobody else's do. The memory is that of the
// process's own operator new, whichever it is (libstdc++'s, a sanitizer's, the host's), and there is no operator
// delete here: memory may come from the compiled part of libstdc++ as well as from this library, and the process's
// own delete takes both.
__asm__(
    ".hidden _Znwm\n.hidden _Znam\n.hidden _ZnwmSt11align_val_t\n.hidden _ZnamSt11align_val_t\n"
    ".hidden _ZnwmRKSt9nothrow_t\n.hidden _ZnamRKSt9nothrow_t\n");

namespace {

std::atomic<int64_t> total{0};

// The operator that this library would have called without the definitions below: hidden symbols are not found.
// Which scope holds libstdc++ depends on how the host loaded this library, so every place is asked.
template <class Function>
Function process_operator(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (!found) found = dlsym(RTLD_NEXT, name);
  if (!found)
    if (void* const library = dlopen("libstdc++.so.6", RTLD_LAZY)) found = dlsym(library, name);
  if (!found) {
    std::fprintf(stderr, "dsv41c: no %s in this process: is libstdc++ linked in statically?\n", name);
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

template <class... Options>
using New = void* (*)(std::size_t, Options...);

void count() { total.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

namespace dsv41c {
int64_t heap_allocations() { return total.load(std::memory_order_relaxed); }
}  // namespace dsv41c

void* operator new(std::size_t size) {
  static const auto next = process_operator<New<>>("_Znwm");
  count();
  return next(size);
}
void* operator new[](std::size_t size) {
  static const auto next = process_operator<New<>>("_Znam");
  count();
  return next(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  static const auto next = process_operator<New<std::align_val_t>>("_ZnwmSt11align_val_t");
  count();
  return next(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  static const auto next = process_operator<New<std::align_val_t>>("_ZnamSt11align_val_t");
  count();
  return next(size, alignment);
}
void* operator new(std::size_t size, const std::nothrow_t& tag) noexcept {
  static const auto next = process_operator<New<const std::nothrow_t&>>("_ZnwmRKSt9nothrow_t");
  count();
  return next(size, tag);
}
void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept {
  static const auto next = process_operator<New<const std::nothrow_t&>>("_ZnamRKSt9nothrow_t");
  count();
  return next(size, tag);
}
