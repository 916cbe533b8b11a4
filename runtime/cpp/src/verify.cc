#include "verify.h"

#include "verify_rules.h"

namespace dsv41c {

void verify_plan(const Plan& plan) {
  using namespace verifier;
  check_tables(plan);
  check_bridges(plan);
  const std::vector<KernelFacts> kernels = check_kernels(plan);
  std::vector<std::vector<Placed>> placed;
  for (const Method& method : plan.methods) placed.push_back(place_values(plan, method, symbol_of(plan, method)));
  for (size_t i = 0; i < plan.methods.size(); ++i) {
    check_ports(plan.methods[i]);
    check_launches(plan, plan.methods[i], symbol_of(plan, plan.methods[i]), placed[i], kernels);
    check_lifetimes(plan.methods[i], placed[i]);
  }
  std::vector<BridgeUse> uses;
  for (size_t i = 0; i < plan.methods.size(); ++i) uses.push_back(check_dataflow(plan.methods[i], placed[i]));
  for (size_t i = 0; i < plan.methods.size(); ++i) check_bridge_use(plan, plan.methods[i], placed[i]);
  check_flows(plan, uses);
  check_ladders(plan, uses);
  check_io(plan, placed);
}

}  // namespace dsv41c
