// Groups of consecutive rows, found by one block from a predicate "row i starts a group".
#pragma once

#include "row_view.h"

constexpr int SCAN_THREADS = 1024;

// The rows that this thread looks after.
struct Range {
  int begin, end;
};
DEVICE Range own_rows(int rows) {
  const int each = (rows + SCAN_THREADS - 1) / SCAN_THREADS;
  const int begin = min(static_cast<int>(threadIdx.x) * each, rows);
  return {begin, min(begin + each, rows)};
}

// visit(i, first, end) for every own row i of the group [first, end). Row 0 must start a group.
template <class Starts, class Visit>
DEVICE void visit_groups(int rows, Starts starts, Visit visit) {
  __shared__ int last_start[SCAN_THREADS], first_start[SCAN_THREADS];
  const int t = threadIdx.x;
  const Range own = own_rows(rows);
  int last = -1, first = rows;
  for (int i = own.end - 1; i >= own.begin; --i)
    if (starts(i)) last = max(last, i), first = i;
  last_start[t] = last;
  first_start[t] = first;
  __syncthreads();
  for (int distance = 1; distance < SCAN_THREADS; distance *= 2) {
    if (t >= distance) last = max(last, last_start[t - distance]);
    if (t + distance < SCAN_THREADS) first = min(first, first_start[t + distance]);
    __syncthreads();
    last_start[t] = last;
    first_start[t] = first;
    __syncthreads();
  }
  const int before = t > 0 ? last_start[t - 1] : 0, after = t + 1 < SCAN_THREADS ? first_start[t + 1] : rows;
  for (int i = own.begin, group = before; i < own.end;) {
    if (starts(i)) group = i;
    int next = i + 1;
    while (next < own.end && !starts(next)) ++next;
    const int end = next < own.end ? next : after;
    for (; i < next; ++i) visit(i, group, end);
  }
}
