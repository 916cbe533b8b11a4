// SHA-256 of a byte range, as the manifest's digests use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dsv41c {

// Lower-case hex digest (64 characters).
std::string sha256_hex(const uint8_t* bytes, size_t size);

}  // namespace dsv41c
