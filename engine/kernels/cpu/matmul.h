// Products of activations with a matrix that stays: bf16, or 4-bit groups against 8-bit activations.
//
// A matrix lies in blocks of 16 rows (outputs), so that 16 sums run side by side and none is ever reduced. Every
// output is summed over the columns in one order, whatever the number of rows or threads: a sequence's result does
// not depend on its batch mates.
#pragma once

#include <algorithm>

#include "vector.h"

// Sums stay in registers only if every short loop over them is unrolled before the compiler gives them a place.
#define UNROLLED _Pragma("GCC unroll 16")

constexpr int64_t kBlock = 16;
constexpr int64_t kGroup = 32;

struct Matrix {
    // bf16: [block][columns / 2][16 rows][2]. Groups: [block][group][plane][8 quads][8 rows][4], where a byte's low
    // half belongs to row r and its high half to row r + 8 of the block.
    const void* weight;
    const uint16_t* scales;  // groups: float16 [block][group][plane][scale | offset][16 rows]; bf16: null
    const float* bias;       // [rows] or null
    int64_t blocks;
    int64_t columns;  // a multiple of 32
    int64_t planes;   // 0: bf16; 1: 4-bit; 2: 8-bit, whose low and high halves are two planes of 4 bits
};

inline int64_t padded(int64_t columns) { return (columns + kGroup - 1) / kGroup * kGroup; }

#ifdef __AVX512BF16__
using Activation = bf16;
inline Activation activation(float value) { return narrow(value); }
#else
using Activation = float;
inline Activation activation(float value) { return value; }
#endif

// What a matrix is multiplied with, in the form that its kind takes.
struct Input {
    Activation* values;  // [rows][stride]
    int8_t* levels;      // [rows][stride]
    float* scales;       // [rows][stride / 32][scale | sum of the group]
    int64_t stride;

    void take(int64_t row, const float* from, const Matrix& matrix) const {
        if (matrix.planes) return quantise(row, from, matrix.columns);
        for (int64_t at = 0; at < matrix.columns; ++at) values[row * stride + at] = activation(from[at]);
    }

    // One scale for each row and group, so that a row's levels are its own affair.
    void quantise(int64_t row, const float* from, int64_t columns) const {
        for (int64_t at = 0; at < columns; at += kGroup) {
            f8 largest = zero8(), broken = zero8();
            for (int64_t i = 0; i < kGroup; i += 8) {
                const f8 values = load8(from + at + i);
                largest = _mm256_max_ps(largest, _mm256_andnot_ps(all8(-0.0f), values));
                broken = _mm256_fmadd_ps(values, zero8(), broken);
            }
            // Levels cannot say NaN or infinity; the scale says it for the group.
            const float scale = max_of(largest) / 127 + sum_of(broken);
            const f8 inverse = all8(scale > 1e-30f ? 1 / scale : 0);
            __m256i total = _mm256_setzero_si256();
            int8_t* to = levels + row * stride + at;
            for (int64_t i = 0; i < kGroup; i += 8) {
                const __m256i wide = _mm256_cvtps_epi32(_mm256_mul_ps(load8(from + at + i), inverse));
                total = _mm256_add_epi32(total, wide);
                const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
                _mm_storel_epi64(reinterpret_cast<__m128i*>(to + i), _mm_packs_epi16(words, words));
            }
            float* pair = scales + (row * stride + at) / kGroup * 2;
            pair[0] = scale;
            pair[1] = scale * sum_of(_mm256_cvtepi32_ps(total));
        }
    }
};

struct Output {
    float* values;  // [rows][stride], stride a multiple of 16
    int64_t stride;
    bool adds;
};

inline void put(const Output& out, const Matrix& matrix, int64_t row, int64_t block, int64_t half, f8 sum) {
    const int64_t column = block * kBlock + half * 8;
    float* to = out.values + row * out.stride + column;
    if (matrix.bias) sum = _mm256_add_ps(sum, load8(matrix.bias + column));
    store8(to, out.adds ? _mm256_add_ps(load8(to), sum) : sum);
}

// M rows of activations with B neighbouring blocks of a bf16 matrix.
template <int M, int B>
void product_bf16(const Matrix& matrix, const Input& in, int64_t row, int64_t block, const Output& out) {
    const int64_t pitch = matrix.columns * kBlock;
    const bf16* weight = static_cast<const bf16*>(matrix.weight) + block * pitch;
    const Activation* x = in.values + row * in.stride;
#ifdef __AVX512BF16__
    __m512 sums[M][B];
    UNROLLED
    for (int i = 0; i < M * B; ++i) sums[i / B][i % B] = _mm512_setzero_ps();
    for (int64_t at = 0; at < matrix.columns; at += 2)
        UNROLLED
        for (int b = 0; b < B; ++b) {
            const __m512i pairs = _mm512_loadu_si512(weight + b * pitch + at * kBlock);
            UNROLLED
            for (int m = 0; m < M; ++m) {
                int32_t pair;
                std::memcpy(&pair, x + m * in.stride + at, sizeof pair);
                sums[m][b] = _mm512_dpbf16_ps(sums[m][b], (__m512bh)_mm512_set1_epi32(pair), (__m512bh)pairs);
            }
        }
    UNROLLED
    for (int m = 0; m < M; ++m)
        UNROLLED
        for (int b = 0; b < B; ++b) {
            put(out, matrix, row + m, block + b, 0, _mm512_castps512_ps256(sums[m][b]));
            put(out, matrix, row + m, block + b, 1, _mm512_extractf32x8_ps(sums[m][b], 1));
        }
#else
    const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000));
    f8 sums[M][B][2];
    UNROLLED
    for (int i = 0; i < M * B * 2; ++i) sums[i / 2 / B][i / 2 % B][i % 2] = zero8();
    for (int64_t at = 0; at < matrix.columns; at += 2)
        UNROLLED
        for (int odd = 0; odd < 2; ++odd)
            UNROLLED
            for (int b = 0; b < B; ++b) {
                f8 w[2];
                UNROLLED
                for (int half = 0; half < 2; ++half) {
                    const bf16* from = weight + b * pitch + at * kBlock + half * kBlock;
                    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
                    w[half] = _mm256_castsi256_ps(odd ? _mm256_and_si256(pairs, high) : _mm256_slli_epi32(pairs, 16));
                }
                UNROLLED
                for (int m = 0; m < M; ++m) {
                    const f8 value = _mm256_broadcast_ss(x + m * in.stride + at + odd);
                    UNROLLED
                    for (int half = 0; half < 2; ++half)
                        sums[m][b][half] = _mm256_fmadd_ps(value, w[half], sums[m][b][half]);
                }
            }
    UNROLLED
    for (int m = 0; m < M; ++m)
        UNROLLED
        for (int b = 0; b < B; ++b)
            UNROLLED
            for (int half = 0; half < 2; ++half) put(out, matrix, row + m, block + b, half, sums[m][b][half]);
#endif
}

// Adds the products of 32 unsigned 4-bit and 32 signed 8-bit numbers: in 16 bits eight times (8 x 2 x 15 x 127 < 2^15).
inline __m256i dot(__m256i sums, __m256i weights, __m256i levels) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpbusd_epi32(sums, weights, levels);
#else
    return _mm256_add_epi16(sums, _mm256_maddubs_epi16(weights, levels));
#endif
}

inline f8 dots_of(__m256i sums) {
#if !defined(__AVX512VNNI__) || !defined(__AVX512VL__)
    sums = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
#endif
    return _mm256_cvtepi32_ps(sums);
}

// M rows of 8-bit activations with one plane of a group: 16 dot products each.
template <int M>
inline void dots(const uint8_t* weight, const int8_t* levels, int64_t stride, __m256i whole[M][2]) {
    const __m256i low = _mm256_set1_epi8(15);
    UNROLLED
    for (int i = 0; i < M * 2; ++i) whole[i / 2][i % 2] = _mm256_setzero_si256();
    // Not unrolled: the compiler would take all products first and run out of registers.
#pragma GCC unroll 1
    for (int quad = 0; quad < 8; ++quad) {
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight + quad * 32));
        const __m256i first = _mm256_and_si256(both, low);
        const __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        UNROLLED
        for (int m = 0; m < M; ++m) {
            int32_t four;
            std::memcpy(&four, levels + m * stride + quad * 4, sizeof four);
            whole[m][0] = dot(whole[m][0], first, _mm256_set1_epi32(four));
            whole[m][1] = dot(whole[m][1], second, _mm256_set1_epi32(four));
        }
    }
}

// M rows of activations with one block of groups: sum over groups of scale * dot + offset * sum of activations.
template <int M>
void product_groups(const Matrix& matrix, const Input& in, int64_t row, int64_t block, const Output& out) {
    const int64_t groups = matrix.columns / kGroup, parts = groups * matrix.planes;
    const uint8_t* weight = static_cast<const uint8_t*>(matrix.weight) + block * parts * kGroup * kBlock / 2;
    const uint16_t* scales = matrix.scales + block * parts * 2 * kBlock;
    f8 sums[M][2];
    UNROLLED
    for (int i = 0; i < M * 2; ++i) sums[i / 2][i % 2] = zero8();
    for (int64_t group = 0; group < groups; ++group)
        for (int64_t plane = 0; plane < matrix.planes; ++plane, weight += 256, scales += 2 * kBlock) {
            __m256i whole[M][2];
            dots<M>(weight, in.levels + row * in.stride + group * kGroup, in.stride, whole);
            const float* pairs = in.scales + (row * in.stride / kGroup + group) * 2;
            UNROLLED
            for (int half = 0; half < 2; ++half) {
                const __m128i* from = reinterpret_cast<const __m128i*>(scales + half * 8);
                const f8 scale = _mm256_cvtph_ps(_mm_loadu_si128(from));
                const f8 offset = _mm256_cvtph_ps(_mm_loadu_si128(from + kBlock / 8));
                UNROLLED
                for (int m = 0; m < M; ++m) {
                    const float* pair = pairs + m * in.stride / kGroup * 2;
                    const f8 scaled = _mm256_mul_ps(scale, _mm256_broadcast_ss(pair));
                    f8 sum = _mm256_fmadd_ps(scaled, dots_of(whole[m][half]), sums[m][half]);
                    sums[m][half] = _mm256_fmadd_ps(offset, _mm256_broadcast_ss(pair + 1), sum);
                }
            }
        }
    UNROLLED
    for (int m = 0; m < M; ++m)
        UNROLLED
        for (int half = 0; half < 2; ++half) put(out, matrix, row + m, block, half, sums[m][half]);
}

// M rows with blocks [first, last). One or two rows leave registers for two blocks at once, which hides latency.
template <int M>
void tile(const Matrix& matrix, const Input& in, int64_t row, int64_t first, int64_t last, const Output& out) {
    if (matrix.planes) {
        for (int64_t block = first; block < last; ++block) product_groups<M>(matrix, in, row, block, out);
        return;
    }
    int64_t block = first;
    if constexpr (M <= 2)
        for (; block + 2 <= last; block += 2) product_bf16<M, 2>(matrix, in, row, block, out);
    for (; block < last; ++block) product_bf16<M, 1>(matrix, in, row, block, out);
}

// This thread's share of in * matrix^T, for rows [0, rows).
inline void multiply(const Matrix& matrix, const Input& in, int64_t rows, const Output& out, int thread, int threads) {
    using Tile = void (*)(const Matrix&, const Input&, int64_t, int64_t, int64_t, const Output&);
    static constexpr Tile tiles[] = {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};
    const int64_t first = matrix.blocks * thread / threads, last = matrix.blocks * (thread + 1) / threads;
    // A few blocks stay in the nearest cache while all rows pass them.
    const int64_t span = rows > 6 ? 1 : last - first;
    const int64_t height = matrix.planes ? 4 : 6;
    for (int64_t block = first; block < last; block += span)
        for (int64_t row = 0; row < rows;) {
            const int64_t left = rows - row;
            const int64_t here = left <= height ? left : left < 2 * height ? (left + 1) / 2 : height;
            tiles[here - 1](matrix, in, row, block, std::min(block + span, last), out);
            row += here;
        }
}
