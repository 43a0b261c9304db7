#include <algorithm>

#include "kernels/reference/access.h"
#include "kernels/reference/kda_slot.h"
#include "kernels/reference/reference_ops.h"

namespace godwit::kernels::reference {
namespace {

constexpr double kL2Eps = 1e-6;  // added to the sum of squares (trap T7)

// What the recurrence reads of one head of one row. k and g are rounded to f32, the type in which a verify
// keeps them for replay; both must fold the same values.
struct HeadInputs {
  std::vector<double> q, v;
  std::vector<float> k, g;
  double beta = 0;
};

std::vector<double> l2_normalised(std::vector<double> z) {
  const double norm = std::sqrt(dot(z.data(), z.data(), static_cast<int64_t>(z.size())) + kL2Eps);
  for (double& v : z) v /= norm;
  return z;
}

HeadInputs head_inputs(const View& qkv, const KdaGates& gates, int64_t t, int64_t h) {
  const int64_t width = qkv.cols / 3;
  const int64_t d = width / gates.beta.cols;
  HeadInputs in;
  in.q = l2_normalised(read(qkv, t, h * d, d));
  for (double& q : in.q) q /= std::sqrt(static_cast<double>(d));
  const std::vector<double> k = l2_normalised(read(qkv, t, width + h * d, d));
  in.k.assign(k.begin(), k.end());
  in.v = read(qkv, t, 2 * width + h * d, d);
  for (int64_t c = h * d; c < (h + 1) * d; ++c) {
    const double g =
        gates.lower_bound * sigmoid(gates.a_exp[h] * (get(gates.forget, t, c) + gates.dt_bias[c]));
    in.g.push_back(static_cast<float>(g));
  }
  in.beta = sigmoid(get(gates.beta, t, h));
  return in;
}

// S <- diag(e^g) S + k u^T: the one update of step, chunk and replay. `State` is float where every row
// commits, double inside a chunk.
template <class State>
void update(State* s, int64_t d, const float* k, const float* g, const float* u) {
  for (int64_t i = 0; i < d; ++i) {
    const double decay = std::exp(static_cast<double>(g[i]));
    for (int64_t e = 0; e < d; ++e) {
      s[i * d + e] = static_cast<State>(decay * s[i * d + e] + static_cast<double>(k[i]) * u[e]);
    }
  }
}

// One row of spec §8.4; u [d] is also what a replay needs.
template <class State>
std::vector<double> recur(State* s, int64_t d, const HeadInputs& in, float* u) {
  std::vector<double> seen(static_cast<size_t>(d));
  for (int64_t i = 0; i < d; ++i) {
    const double k = in.k[i] * std::exp(static_cast<double>(in.g[i]));
    for (int64_t e = 0; e < d; ++e) seen[e] += k * s[i * d + e];
  }
  for (int64_t e = 0; e < d; ++e) u[e] = static_cast<float>(in.beta * (in.v[e] - seen[e]));
  update(s, d, in.k.data(), in.g.data(), u);
  std::vector<double> o(static_cast<size_t>(d));
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t e = 0; e < d; ++e) o[e] += in.q[i] * s[i * d + e];
  }
  return o;
}

// The state a sequence starts from: what the slot holds, or zero at position 0 whatever it holds.
template <class State>
std::vector<State> initial_state(const Sequence& s, const float* stored, int64_t d) {
  std::vector<State> state(static_cast<size_t>(d * d));
  if (s.first > 0) std::copy(stored, stored + d * d, state.begin());
  return state;
}

}  // namespace

void ReferenceOps::kda_chunk(const StepView& step, const KdaChunk& a) {
  const int64_t heads = a.gates.beta.cols;
  const int64_t d = a.out.cols / heads;
  std::vector<float> u(static_cast<size_t>(d));
  for (int64_t i = step.decode_sequences; i < step.sequences; ++i) {
    const Sequence& s = step.sequence[i];
    GODWIT_ASSERT(s.first % kPageTokens == 0);
    const KdaSlot slot(a.state, s.slot);
    for (int64_t h = 0; h < heads; ++h) {
      float* stored = slot.state() + h * d * d;
      std::vector<double> state = initial_state<double>(s, stored, d);
      for (int64_t t = s.row; t < s.row + s.rows; ++t) {
        write(a.out.col_range(h * d, d), t,
              recur(state.data(), d, head_inputs(a.qkv, a.gates, t, h), u.data()));
        // Rounded where a slice may end, so that slicing changes no bit.
        if ((position_of(step, t) + 1) % kPageTokens == 0) {
          for (double& v : state) v = static_cast<float>(v);
        }
      }
      std::copy(state.begin(), state.end(), stored);
    }
  }
}

void ReferenceOps::kda_step(const StepView& step, const KdaStep& a) {
  const int64_t heads = a.gates.beta.cols;
  const int64_t width = a.out.cols;
  const int64_t d = width / heads;
  std::vector<float> u(static_cast<size_t>(d));
  for (int64_t i = 0; i < step.decode_sequences; ++i) {
    const Sequence& s = step.sequence[i];
    const KdaSlot slot(a.state, s.slot);
    for (int64_t h = 0; h < heads; ++h) {
      float* stored = slot.state() + h * d * d;
      std::vector<float> state = initial_state<float>(s, stored, d);
      for (int64_t r = 0; r < s.rows; ++r) {
        const HeadInputs in = head_inputs(a.qkv, a.gates, s.row + r, h);
        write(a.out.col_range(h * d, d), s.row + r, recur(state.data(), d, in, u.data()));
        if (s.kind != RowKind::verify) continue;
        const int64_t at = r * width + h * d;
        std::copy_n(in.k.begin(), d, slot.pending_key() + at);
        std::copy_n(in.g.begin(), d, slot.pending_decay() + at);
        std::copy_n(u.begin(), d, slot.pending_delta() + at);
      }
      if (s.kind != RowKind::verify) std::copy(state.begin(), state.end(), stored);
    }
  }
}

void ReferenceOps::kda_replay(const StepView& step, const KdaReplay& a) {
  const int64_t d = a.head_dim;
  const int64_t width = a.heads * d;
  for (int64_t i = 0; i < step.sequences; ++i) {
    const Sequence& s = step.sequence[i];
    if (s.replay == 0) continue;
    const KdaSlot slot(a.state, s.slot);
    const bool from_zero = s.first == s.replay;
    if (from_zero) std::fill_n(slot.state(), a.heads * d * d, 0.0f);
    for (int64_t r = 0; r < s.replay; ++r) {
      for (int64_t h = 0; h < a.heads; ++h) {
        const int64_t at = r * width + h * d;
        update(slot.state() + h * d * d, d, slot.pending_key() + at, slot.pending_decay() + at,
               slot.pending_delta() + at);
      }
    }
    ConvWindow window(slot, a.taps, 3 * width, from_zero);
    for (int64_t r = 0; r < s.replay; ++r) {
      std::vector<double> raw(static_cast<size_t>(3 * width));
      for (int64_t c = 0; c < 3 * width; ++c) {
        raw[c] = load(slot.pending_raw(), a.state.window_dtype, r * 3 * width + c);
      }
      window.push(raw);
    }
    window.commit();
  }
}

void ReferenceOps::gated_norm(const GatedNorm& a) {
  const int64_t d = a.head_dim;
  for (int64_t t = 0; t < a.o.rows; ++t) {
    for (int64_t first = 0; first < a.o.cols; first += d) {
      const std::vector<double> o = read(a.o, t, first, d);
      const double scale = 1 / std::sqrt(dot(o.data(), o.data(), d) / static_cast<double>(d) + a.eps);
      for (int64_t c = 0; c < d; ++c) {
        put(a.out, t, first + c, o[c] * scale * a.weight[c] * sigmoid(get(a.gate, t, first + c)));
      }
    }
  }
}

}  // namespace godwit::kernels::reference
