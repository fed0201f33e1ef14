// Attention over pages: softmax in one pass over the context, 32 tokens at a time, in float32.
//
// A tile is some neighbouring new tokens of one sequence with all query heads of one KV head, so that keys and values
// are read once for all of them. Blocks of the context start at multiples of 32 whatever the page size, tile or
// batch, so that a token's result depends on none of these.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "vector.h"

constexpr int64_t kSpan = 32;

struct Sequence {
    int64_t start;   // row of its first new token
    int64_t length;  // new tokens
    int64_t context; // tokens in the pool after this step, the new ones included
    const int64_t* pages;
};

// One layer of the pool, [K|V][kv head][page][slot][dim] in bf16.
struct LayerPool {
    bf16* base;
    int64_t heads, pages, slots, dim;

    bf16* at(int64_t plane, int64_t head, int64_t slot) const {
        return base + ((plane * heads + head) * pages * slots + slot) * dim;
    }
};

// The running state of one query row.
struct SoftmaxRow {
    float largest = -std::numeric_limits<float>::infinity();
    float total = 0;
};

class AttentionTile {
   public:
    AttentionTile(const LayerPool& pool, int64_t rows)
        : pool_(pool), keys_(kSpan * pool.dim), values_(kSpan * pool.dim), states_(rows) {}

    // q: the sequence's first token's first query of this KV head; tokens lie `pitch` apart, `group` heads side by side.
    void attend(const Sequence& sequence, int64_t head, int64_t first, int64_t count, int64_t group, const float* q,
                float* out, int64_t pitch, int64_t out_pitch) {
        const int64_t before = sequence.context - sequence.length + 1;
        std::fill(states_.begin(), states_.end(), SoftmaxRow{});
        for (int64_t from = 0; from < before + first + count - 1; from += kSpan) {
            const int64_t size = std::min(kSpan, sequence.context - from);
            fetch(sequence, 0, head, from, size, keys_.data());
            fetch(sequence, 1, head, from, size, values_.data());
            for (int64_t token = first; token < first + count; ++token) {
                const int64_t visible = std::min(size, before + token - from);
                if (visible <= 0) continue;
                for (int64_t g = 0; g < group; ++g)
                    absorb(states_[(token - first) * group + g], q + token * pitch + g * pool_.dim, visible,
                           out + token * out_pitch + g * pool_.dim, from == 0);
            }
        }
        for (int64_t token = first; token < first + count; ++token)
            for (int64_t g = 0; g < group; ++g) {
                const f8 inverse = all8(1 / states_[(token - first) * group + g].total);
                float* row = out + token * out_pitch + g * pool_.dim;
                for (int64_t d = 0; d < pool_.dim; d += 8) store8(row + d, _mm256_mul_ps(load8(row + d), inverse));
            }
    }

   private:
    // Copies a span to float32, and zeros behind it up to the next multiple of eight.
    void fetch(const Sequence& sequence, int64_t plane, int64_t head, int64_t from, int64_t size, float* to) const {
        int64_t page = from / pool_.slots, slot = from % pool_.slots;
        for (int64_t left = size; left > 0; ++page, slot = 0) {
            const int64_t tokens = std::min(left, pool_.slots - slot);
            const bf16* row = pool_.at(plane, head, sequence.pages[page] * pool_.slots + slot);
            for (int64_t at = 0; at < tokens * pool_.dim; at += 8) store8(to + at, widen8(row + at));
            to += tokens * pool_.dim;
            left -= tokens;
        }
        std::fill(to, to + (8 - size % 8) % 8 * pool_.dim, 0.0f);
    }

    void absorb(SoftmaxRow& state, const float* q, int64_t visible, float* out, bool is_first) const {
        alignas(32) float weights[kSpan];
        const f8 far = all8(-std::numeric_limits<float>::infinity());
        f8 largest = far;
        for (int64_t j = 0; j < visible; j += 8) {
            const f8 lane = _mm256_add_ps(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), all8(j));
            const f8 is_hidden = _mm256_cmp_ps(lane, all8(visible), _CMP_GE_OQ);
            const f8 scores = _mm256_blendv_ps(scores_of(q, keys_.data() + j * pool_.dim), far, is_hidden);
            largest = _mm256_max_ps(largest, scores);
            store8(weights + j, scores);
        }
        const float top = std::max(state.largest, max_of(largest));
        f8 total = zero8();
        for (int64_t j = 0; j < visible; j += 8) {
            const f8 scores = load8(weights + j);
            const f8 hidden = _mm256_cmp_ps(scores, far, _CMP_EQ_OQ);
            const f8 weight = _mm256_andnot_ps(hidden, exp8(_mm256_sub_ps(scores, all8(top))));
            total = _mm256_add_ps(total, weight);
            store8(weights + j, weight);
        }
        const float shrink = is_first ? 0 : _mm256_cvtss_f32(exp8(all8(state.largest - top)));
        state.largest = top;
        state.total = state.total * shrink + sum_of(total);
        const int64_t dim = pool_.dim;
        int64_t d = 0;
        for (; d + 64 <= dim; d += 64) blend<8>(weights, visible, d, shrink, is_first, out);
        for (; d < dim; d += 8) blend<1>(weights, visible, d, shrink, is_first, out);
    }

    // Scores of one query with eight keys.
    f8 scores_of(const float* q, const float* keys) const {
        const int64_t dim = pool_.dim;
        f8 sums[8] = {};
        for (int64_t d = 0; d < dim; d += 8) {
            const f8 part = load8(q + d);
            for (int j = 0; j < 8; ++j) sums[j] = _mm256_fmadd_ps(part, load8(keys + j * dim + d), sums[j]);
        }
        return sums_of(sums);
    }

    // out = out * shrink + weights * values, for V * 8 dimensions.
    template <int V>
    void blend(const float* weights, int64_t visible, int64_t d, float shrink, bool is_first, float* out) const {
        f8 sums[V];
        for (int v = 0; v < V; ++v)
            sums[v] = is_first ? zero8() : _mm256_mul_ps(load8(out + d + v * 8), all8(shrink));
        const float* value = values_.data() + d;
        for (int64_t j = 0; j < visible; ++j, value += pool_.dim) {
            const f8 weight = all8(weights[j]);
            for (int v = 0; v < V; ++v) sums[v] = _mm256_fmadd_ps(weight, load8(value + v * 8), sums[v]);
        }
        for (int v = 0; v < V; ++v) store8(out + d + v * 8, sums[v]);
    }

    LayerPool pool_;
    std::vector<float> keys_, values_;
    std::vector<SoftmaxRow> states_;
};
