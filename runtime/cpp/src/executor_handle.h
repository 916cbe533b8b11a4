// What the executor's C interface hands out.
#pragma once

#include "executor.h"

struct dsv41c_executor {
  dsv41c::Executor executor;
};
