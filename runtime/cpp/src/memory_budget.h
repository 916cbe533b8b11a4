// Whether a plan fits into the memory that the caller allows, known before anything is reserved or mapped.
#pragma once

#include "plan.h"

namespace dsv41c {

// What a load of the plan takes beside its weights: on the CPU the reservation; on a device the regions as its
// allocations are aligned and, `with_graphs`, the executable graphs of all buckets.
struct PlannedMemory {
  int64_t state = 0, bridges = 0, io = 0, arena = 0, alignment = 0, graphs = 0;

  int64_t total() const { return state + bridges + io + arena + alignment + graphs; }
};

PlannedMemory planned_memory(const Plan& plan, bool with_graphs);

// E0707 when that is more than `budget` bytes; 0 is no budget.
void check_memory_budget(const Plan& plan, int64_t budget, bool with_graphs);

}  // namespace dsv41c
