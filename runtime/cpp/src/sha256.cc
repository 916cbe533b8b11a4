// SHA-256 after FIPS 180-4.
#include "sha256.h"

#include <array>
#include <bit>
#include <cstring>

namespace dsv41c {
namespace {

using Words = std::array<uint32_t, 8>;

// First 32 bits of the fractional parts of the square or cube roots of the first primes, by integer search:
// the largest r with r^k <= p * 2^(32k), whose low 32 bits are the wanted ones.
uint32_t root_fraction(uint32_t prime, int power) {
  unsigned __int128 low = 0, high = static_cast<unsigned __int128>(32) << 32;
  while (high - low > 1) {
    const unsigned __int128 middle = (low + high) / 2;
    // middle < 2^37, so middle^3 < 2^111 fits.
    const unsigned __int128 value = power == 2 ? middle * middle : middle * middle * middle;
    (value <= static_cast<unsigned __int128>(prime) << (32 * power) ? low : high) = middle;
  }
  return static_cast<uint32_t>(low);
}

struct Constants {
  Words initial;
  std::array<uint32_t, 64> round;
  Constants() {
    int found = 0;
    for (uint32_t n = 2; found < 64; ++n) {
      bool is_prime = true;
      for (uint32_t d = 2; d * d <= n && is_prime; ++d) is_prime = n % d != 0;
      if (!is_prime) continue;
      if (found < 8) initial[found] = root_fraction(n, 2);
      round[found++] = root_fraction(n, 3);
    }
  }
};

const Constants& constants() {
  static const Constants value;
  return value;
}

void compress(Words& state, const uint8_t* block, const Constants& k) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    std::memcpy(&w[i], block + 4 * i, 4);
    w[i] = __builtin_bswap32(w[i]);
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + k.round[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const Words add{a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += add[i];
}

}  // namespace

std::string sha256_hex(const uint8_t* bytes, size_t size) {
  const Constants& k = constants();
  Words state = k.initial;
  size_t done = 0;
  for (; done + 64 <= size; done += 64) compress(state, bytes + done, k);
  // The tail: remaining bytes, 0x80, zeros, and the length in bits as a 64-bit big-endian number.
  uint8_t tail[128] = {};
  const size_t rest = size - done;
  if (rest) std::memcpy(tail, bytes + done, rest);
  tail[rest] = 0x80;
  const size_t padded = rest < 56 ? 64 : 128;
  const uint64_t bits = __builtin_bswap64(static_cast<uint64_t>(size) * 8);
  std::memcpy(tail + padded - 8, &bits, 8);
  for (size_t at = 0; at < padded; at += 64) compress(state, tail + at, k);

  std::string text;
  for (uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(word >> shift) & 15];
  return text;
}

}  // namespace dsv41c
