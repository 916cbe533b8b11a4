// Refuses a plan that is not safe to run; the same rules and messages as runtime/plan/verify.py.
#pragma once

#include "plan.h"

namespace dsv41c {

// Throws Error E0502 (a rule is broken), E0503 (unknown feature) or E0504 (an expression cannot be evaluated).
void verify_plan(const Plan& plan);

}  // namespace dsv41c
