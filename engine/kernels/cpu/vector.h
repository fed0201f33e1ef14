// Eight floats at a time: conversions, sums and the exponential. Needs AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this step needs a CPU with AVX2, FMA and F16C"
#endif

using f8 = __m256;
using bf16 = uint16_t;

inline f8 zero8() { return _mm256_setzero_ps(); }
inline f8 all8(float value) { return _mm256_set1_ps(value); }
inline f8 load8(const float* from) { return _mm256_loadu_ps(from); }
inline void store8(float* to, f8 values) { _mm256_storeu_ps(to, values); }

inline f8 widen8(const bf16* from) {
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

inline bf16 narrow(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<bf16>(bits >> 16 | 0x40);  // rounding could hide a NaN
    return static_cast<bf16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float sum_of(f8 values) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

inline float max_of(f8 values) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// The eight sums of eight vectors.
inline f8 sums_of(const f8 rows[8]) {
    const f8 low = _mm256_hadd_ps(_mm256_hadd_ps(rows[0], rows[1]), _mm256_hadd_ps(rows[2], rows[3]));
    const f8 high = _mm256_hadd_ps(_mm256_hadd_ps(rows[4], rows[5]), _mm256_hadd_ps(rows[6], rows[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}

// e^x to 2 units in the last place of a float: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2].
inline f8 exp8(f8 x) {
    // Operands in this order, so that a NaN stays one.
    x = _mm256_max_ps(all8(-87.3f), _mm256_min_ps(all8(88.3f), x));
    const f8 n = _mm256_round_ps(_mm256_mul_ps(x, all8(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    f8 r = _mm256_fnmadd_ps(n, all8(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, all8(-2.12194440e-4f), r);
    f8 p = all8(1.0f / 720);
    for (const float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = _mm256_fmadd_ps(p, r, all8(term));
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}
