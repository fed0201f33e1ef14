// One forward pass of a Llama-like decoder on a CPU: same inputs, pool and logits as engine/model/decoder.py.
//
// All of a step runs in one OpenMP region. Between its phases stands a barrier that yields: engines share cores, and
// a thread that spins for one that has no core costs fifteen steps.
#include <omp.h>
#include <sched.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <new>

#include "attention.h"
#include "matmul.h"

struct Layer {
    const float *input_norm, *q_norm, *k_norm, *post_norm;  // q_norm, k_norm: null but for Qwen3
    Matrix qkv, output, gate_up, down;
};

struct Model {
    int64_t hidden, heads, kv_heads, head_dim, ffn;
    double rms_eps;
    const bf16* embedding;  // [vocab][hidden]
    const float* norm;
    const Layer* layers;
    int64_t layer_count;
    Matrix head;
};

struct Step {
    int64_t tokens, sequence_count, logit_count, pages, page_size;
    const int64_t *ids, *slots, *logit_rows;
    const float *cosines, *sines;  // [tokens][head_dim / 2]
    const Sequence* sequences;
    bf16* pool;     // [layer][K|V][kv head][page][slot][dim]
    float* logits;  // [logit_count][head.blocks * 16]
};

class Barrier {
   public:
    void wait(int threads) {
        if (threads == 1) return;
        const int round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int turn = 0; round_.load(std::memory_order_acquire) == round; ++turn)
            turn < 4000 ? _mm_pause() : static_cast<void>(sched_yield());
    }

   private:
    std::atomic<int> arrived_{0}, round_{0};
};

// Memory of one step: `wide` holds what a matrix gave, `x` the residual stream.
class Scratch {
   public:
    Scratch(const Model& model, const Step& step)
        : qkv(padded((model.heads + 2 * model.kv_heads) * model.head_dim)),
          queries(padded(model.heads * model.head_dim)),
          hidden(padded(model.hidden)),
          ffn(padded(model.ffn)),
          widest(std::max({queries, hidden, ffn})) {
        const int64_t rows = std::max(step.tokens, step.logit_count);
        x = take<float>(rows * hidden);
        wide = take<float>(rows * std::max(qkv, padded(2 * model.ffn)));
        narrow = take<float>(rows * widest);
        in = {take<Activation>(rows * widest), take<int8_t>(rows * widest), take<float>(rows * widest / kGroup * 2),
              widest};
    }

    const int64_t qkv, queries, hidden, ffn, widest;  // strides, in elements
    float *x, *wide, *narrow;
    Input in;

   private:
    // Zeros: what lies behind a row's end is multiplied too, with zero weights.
    template <class T>
    T* take(int64_t count) {
        owned_.emplace_back(std::calloc(count, sizeof(T)), std::free);
        if (!owned_.back()) throw std::bad_alloc();
        return static_cast<T*>(owned_.back().get());
    }
    std::vector<std::unique_ptr<void, void (*)(void*)>> owned_;
};

// What one thread does of a step; every thread runs the same phases.
class Worker {
   public:
    Worker(const Model& model, const Step& step, Scratch& scratch, Barrier& barrier)
        : model_(model), step_(step), scratch_(scratch), barrier_(barrier), thread_(omp_get_thread_num()),
          threads_(omp_get_num_threads()) {}

    void run() {
        rows(step_.tokens, [&](int64_t row) {
            const bf16* from = model_.embedding + step_.ids[row] * model_.hidden;
            for (int64_t at = 0; at < model_.hidden; ++at) {
                const uint32_t bits = static_cast<uint32_t>(from[at]) << 16;
                std::memcpy(scratch_.x + row * scratch_.hidden + at, &bits, sizeof bits);
            }
        });
        for (int64_t index = 0; index < model_.layer_count; ++index) attention_and_mlp(index);
        rows(step_.logit_count, [&](int64_t row) {
            normalise(scratch_.x + step_.logit_rows[row] * scratch_.hidden, model_.norm, model_.hidden,
                      scratch_.narrow + row * scratch_.widest);
            scratch_.in.take(row, scratch_.narrow + row * scratch_.widest, model_.head);
        });
        product(model_.head, step_.logit_count, {step_.logits, model_.head.blocks * kBlock, false});
    }

   private:
    void attention_and_mlp(int64_t index) {
        const Layer& layer = model_.layers[index];
        const int64_t width = (model_.heads + 2 * model_.kv_heads) * model_.head_dim;
        const LayerPool pool{step_.pool + index * 2 * model_.kv_heads * step_.pages * step_.page_size * model_.head_dim,
                             model_.kv_heads, step_.pages, step_.page_size, model_.head_dim};
        const Output residual{scratch_.x, scratch_.hidden, true};
        normalised(layer.input_norm, layer.qkv);
        product(layer.qkv, step_.tokens, {scratch_.wide, scratch_.qkv, false});
        rows(step_.tokens, [&](int64_t row) { rotate_and_store(layer, pool, row, width); });
        attend(pool);
        rows(step_.tokens, [&](int64_t row) {
            scratch_.in.take(row, scratch_.narrow + row * scratch_.widest, layer.output);
        });
        product(layer.output, step_.tokens, residual);
        normalised(layer.post_norm, layer.gate_up);
        product(layer.gate_up, step_.tokens, {scratch_.wide, padded(2 * model_.ffn), false});
        rows(step_.tokens, [&](int64_t row) {
            gate(scratch_.wide + row * padded(2 * model_.ffn), scratch_.narrow + row * scratch_.widest);
            scratch_.in.take(row, scratch_.narrow + row * scratch_.widest, layer.down);
        });
        product(layer.down, step_.tokens, residual);
    }

    template <class Body>
    void rows(int64_t count, Body body) {
        for (int64_t row = count * thread_ / threads_; row < count * (thread_ + 1) / threads_; ++row) body(row);
        barrier_.wait(threads_);
    }

    void product(const Matrix& matrix, int64_t count, const Output& out) {
        multiply(matrix, scratch_.in, count, out, thread_, threads_);
        barrier_.wait(threads_);
    }

    void normalised(const float* weight, const Matrix& matrix) {
        rows(step_.tokens, [&](int64_t row) {
            float* to = scratch_.narrow + row * scratch_.widest;
            normalise(scratch_.x + row * scratch_.hidden, weight, model_.hidden, to);
            scratch_.in.take(row, to, matrix);
        });
    }

    void normalise(const float* x, const float* weight, int64_t size, float* to) const {
        float squares = 0;
        for (int64_t at = 0; at < size; ++at) squares += x[at] * x[at];
        const float scale = 1 / std::sqrt(squares / size + static_cast<float>(model_.rms_eps));
        for (int64_t at = 0; at < size; ++at) to[at] = x[at] * scale * weight[at];
        // `to` held something longer before.
        std::fill(to + size, to + padded(size), 0.0f);
    }

    // Norms and rotates a token's queries and keys in place, and writes its keys and values to the pool.
    void rotate_and_store(const Layer& layer, const LayerPool& pool, int64_t row, int64_t width) {
        const int64_t dim = model_.head_dim, half = dim / 2, kv = model_.kv_heads;
        const float *cosine = step_.cosines + row * half, *sine = step_.sines + row * half;
        float* heads = scratch_.wide + row * scratch_.qkv;
        for (int64_t head = 0; head < model_.heads + kv; ++head) {
            float* at = heads + head * dim;
            const float* norm = head < model_.heads ? layer.q_norm : layer.k_norm;
            if (norm) normalise_head(at, norm);
            const float scale = head < model_.heads ? 1 / std::sqrt(static_cast<float>(dim)) : 1;
            for (int64_t d = 0; d < half; ++d) {
                const float a = at[d] * scale, b = at[d + half] * scale;
                at[d] = a * cosine[d] - b * sine[d];
                at[d + half] = b * cosine[d] + a * sine[d];
            }
        }
        for (int64_t head = 0; head < 2 * kv; ++head) {
            const float* from = heads + width - (2 * kv - head) * dim;
            bf16* to = pool.at(head / kv, head % kv, step_.slots[row]);
            for (int64_t d = 0; d < dim; ++d) to[d] = narrow(from[d]);
        }
    }

    void normalise_head(float* head, const float* weight) const {
        float squares = 0;
        for (int64_t d = 0; d < model_.head_dim; ++d) squares += head[d] * head[d];
        const float scale = 1 / std::sqrt(squares / model_.head_dim + static_cast<float>(model_.rms_eps));
        for (int64_t d = 0; d < model_.head_dim; ++d) head[d] *= scale * weight[d];
    }

    // Tiles are dealt in turn: with a causal mask neighbours cost about the same.
    void attend(const LayerPool& pool) {
        const int64_t group = model_.heads / model_.kv_heads, height = std::max<int64_t>(1, 48 / group);
        AttentionTile tile(pool, height * group);
        int64_t number = 0;
        for (int64_t index = 0; index < step_.sequence_count; ++index) {
            const Sequence& sequence = step_.sequences[index];
            for (int64_t first = 0; first < sequence.length; first += height)
                for (int64_t head = 0; head < model_.kv_heads; ++head)
                    if (number++ % threads_ == thread_)
                        tile.attend(sequence, head, first, std::min(height, sequence.length - first), group,
                                    scratch_.wide + sequence.start * scratch_.qkv + head * group * model_.head_dim,
                                    scratch_.narrow + sequence.start * scratch_.widest + head * group * model_.head_dim,
                                    scratch_.qkv, scratch_.widest);
        }
        const int64_t width = model_.heads * model_.head_dim;
        if (width % kGroup)
            for (int64_t row = thread_; row < step_.tokens; row += threads_)
                std::fill(scratch_.narrow + row * scratch_.widest + width,
                          scratch_.narrow + row * scratch_.widest + padded(width), 0.0f);
        barrier_.wait(threads_);
    }

    void gate(const float* gate_up, float* to) const {
        int64_t at = 0;
        for (; at + 8 <= model_.ffn; at += 8) {
            const f8 x = load8(gate_up + at);
            const f8 sigmoid_inverse = _mm256_add_ps(all8(1), exp8(_mm256_sub_ps(zero8(), x)));
            store8(to + at, _mm256_div_ps(_mm256_mul_ps(x, load8(gate_up + model_.ffn + at)), sigmoid_inverse));
        }
        for (; at < model_.ffn; ++at) to[at] = gate_up[at] / (1 + std::exp(-gate_up[at])) * gate_up[model_.ffn + at];
        std::fill(to + model_.ffn, to + scratch_.ffn, 0.0f);
    }

    const Model& model_;
    const Step& step_;
    Scratch& scratch_;
    Barrier& barrier_;
    const int thread_, threads_;
};

// Returns 0, or 1 when there is no memory for the step.
extern "C" int cpu_step(const Model* model, const Step* step, int threads) {
    try {
        Scratch scratch(*model, *step);
        Barrier barrier;
#pragma omp parallel num_threads(threads)
        Worker(*model, *step, scratch, barrier).run();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}
