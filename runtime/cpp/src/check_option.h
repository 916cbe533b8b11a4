// Which checks a load asks for: none, or all of them with the seed of the order of launches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsv41c {

// The seed of `full` or `full:SEED`, nothing for `off`. A null `given` leaves it to DSV41C_CHECK in the environment,
// which checks nothing where it is not set. E0901.
std::optional<uint64_t> parse_check(const char* given);

std::string check_text(std::optional<uint64_t> seed);  // as parse_check takes it

// E0901: checks are for the CPU.
void refuse_check(const std::string& target);

}  // namespace dsv41c
