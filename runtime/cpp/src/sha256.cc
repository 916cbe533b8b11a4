// SHA-256 after FIPS 180-4; with the processor's SHA instructions where it has them.
#include "sha256.h"

#include <cpuid.h>
#include <immintrin.h>

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

// The instructions hold the state as the vectors ABEF and CDGH and do two rounds at a time.
__attribute__((target("sha,sse4.1"))) void compress_by_instructions(Words& state, const uint8_t* bytes, size_t blocks,
                                                                    const Constants& k) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* words = reinterpret_cast<__m128i*>(state.data());
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; blocks > 0; --blocks, bytes += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the newest 16 words of the schedule, four in each vector
    for (int i = 0; i < 16; ++i) {
      __m128i& now = w[i & 3];
      if (i < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + i), big_endian);
      } else {
        const __m128i last = w[(i + 3) & 3], seven_back = _mm_alignr_epi8(last, w[(i + 2) & 3], 4);
        now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) & 3]), seven_back), last);
      }
      const auto* round = reinterpret_cast<const __m128i*>(k.round.data()) + i;
      const __m128i sum = _mm_add_epi32(now, _mm_loadu_si128(round));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

bool has_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

void compress_all(Words& state, const uint8_t* bytes, size_t blocks, const Constants& k) {
  static const bool by_instructions = has_instructions();
  if (by_instructions) return compress_by_instructions(state, bytes, blocks, k);
  for (size_t i = 0; i < blocks; ++i) compress(state, bytes + 64 * i, k);
}

}  // namespace

std::string sha256_hex(const uint8_t* bytes, size_t size) {
  const Constants& k = constants();
  Words state = k.initial;
  const size_t done = size / 64 * 64;
  compress_all(state, bytes, size / 64, k);
  // The tail: remaining bytes, 0x80, zeros, and the length in bits as a 64-bit big-endian number.
  uint8_t tail[128] = {};
  const size_t rest = size - done;
  if (rest) std::memcpy(tail, bytes + done, rest);
  tail[rest] = 0x80;
  const size_t padded = rest < 56 ? 64 : 128;
  const uint64_t bits = __builtin_bswap64(static_cast<uint64_t>(size) * 8);
  std::memcpy(tail + padded - 8, &bits, 8);
  compress_all(state, tail, padded / 64, k);

  std::string text;
  for (uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(word >> shift) & 15];
  return text;
}

}  // namespace dsv41c
