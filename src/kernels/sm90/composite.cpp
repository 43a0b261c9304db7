// The entries of CudaOps that put several products into one launch.
#include <algorithm>
#include <optional>

#include "kernels/sm90/cuda_ops.h"

namespace godwit::sm90 {

namespace {

// Rows [first, first + count), all of one family.
kernels::Experts part_of(kernels::Experts a, int64_t first, int64_t count) {
  for (View* v : {&a.x, &a.ids, &a.weights, &a.out}) *v = v->row_range(first, count);
  a.decode_rows = kernels::kAllRows;
  return a;
}

}  // namespace

kernels::Ffn part_of(kernels::Ffn a, int64_t first, int64_t count) {
  for (View* v : {&a.x, &a.gate_up, &a.inner, &a.out}) *v = v->row_range(first, count);
  a.decode_rows = kernels::kAllRows;
  return a;
}

struct CudaOps::Families {
  struct List {
    Product product[kMostProducts];
    size_t count = 0;
    void add(const Product& p) { product[count++] = p; }
    std::span<const Product> all() const { return {product, count}; }
  };
  List decode, dense, other;  // other: prefill rows that take the decode form
};

void CudaOps::sort_rows(const Product& p, int64_t decode_rows, Families& to) {
  const int64_t rows = p.x.rows, first = std::clamp<int64_t>(decode_rows, 0, rows);
  const auto part = [&p](int64_t begin, int64_t count) {
    return Product{p.x.row_range(begin, count), {}, p.w, p.heads, p.out.row_range(begin, count)};
  };
  if (first > 0) to.decode.add(part(0, first));
  if (first == rows) return;
  const Product prefill = part(first, rows - first);
  (fits_dense(prefill) ? to.dense : to.other).add(prefill);
}

void CudaOps::multiply(const Families& f) {
  multiply(f.decode.all());
  multiply(f.other.all());
  multiply_dense(f.dense.all());
}

void CudaOps::multiply(std::span<const Product> products) {
  Product together[kMostProducts];
  int count = 0;
  const View* quantized = nullptr;  // whose codes lie in the scratch
  std::optional<DType> met;         // by the bf16 weights among them
  const auto flush = [&] {
    if (count > 0) skinny_linear(device_.stream(), together, count, device_.multiprocessors());
    count = 0;
    quantized = nullptr;
    met.reset();
  };
  for (const Product& given : products) {
    if (given.x.rows == 0 || given.w.out() == 0) continue;
    Product p = given;
    if (count == kMostProducts || (count > 0 && together[0].x.rows != p.x.rows)) flush();
    forget_codes(p.out);
    const bool fp8 = p.w.data.dtype == DType::f8_e4m3;
    if (!fp8 && met.value_or(p.x.dtype) != p.x.dtype) flush();
    if (const Quantized* ready = fp8 ? ready_codes(p.x) : nullptr) {
      p.codes = *ready;
    } else if (fp8) {
      if (quantized && !same_rows(*quantized, p.x)) flush();
      p.codes = codes_in(codes_, p.x.rows, p.x.cols);
      if (!quantized) quantize(device_.stream(), p.x, p.codes, nullptr);
      quantized = &given.x;
    }
    const bool streams = p.w.data.dtype == DType::bf16 && p.x.dtype == DType::bf16;  // by Hopper's products
    if (fits_skinny(p) && (!streams || device_.is_hopper())) {
      together[count++] = p;
      if (!fp8) met = p.x.dtype;
    } else {
      sm90::linear(device_.stream(), p.x, p.codes, p.w, p.heads, p.out);
    }
  }
  flush();
}

void CudaOps::linear(const kernels::Linear& a) {
  linears({&a, 1});
}

void CudaOps::linears(std::span<const kernels::Linear> all) {
  while (!all.empty()) {
    const size_t count = std::min<size_t>(all.size(), kMostProducts);
    Families sorted;
    for (const kernels::Linear& a : all.first(count)) {
      GODWIT_ASSERT(a.out.dtype == DType::f32);
      sort_rows({a.x, {}, a.w, 1, a.out}, a.decode_rows, sorted);
    }
    multiply(sorted);
    all = all.subspan(count);
  }
}

void CudaOps::head_linear(const kernels::HeadLinear& a) {
  GODWIT_ASSERT(a.w.dtype != DType::f8_e4m3);
  Families sorted;
  sort_rows({a.x, {}, Weight{a.w}, a.heads, a.out}, a.decode_rows, sorted);
  multiply(sorted);
}

GroupedScratch CudaOps::grouped_scratch(const kernels::Experts& a, int64_t shared_inner) const {
  const int64_t entries = a.x.rows * (a.ids.cols + 1);
  GroupedScratch s;
  s.ended = reinterpret_cast<int32_t*>(groups_.base);
  s.groups = groups_.base + kCounterBytes;
  s.inner = reinterpret_cast<float*>(inner_.base);
  s.inner_width = a.inner;
  s.inner_stride = std::max(a.inner, shared_inner);
  s.x = codes_in(codes_, a.x.rows, a.x.cols);
  s.inner_codes = codes_in(inner_codes_, entries, s.inner_stride);
  s.y = reinterpret_cast<float*>(choices_.base);
  GODWIT_ASSERT(kCounterBytes + group_bytes(a.x.rows, a.ids.cols) <= groups_.bytes);
  GODWIT_ASSERT(entries * s.inner_stride * int64_t{sizeof(float)} <= inner_.bytes);
  GODWIT_ASSERT(entries * ((a.x.cols + 31) / 32 * 32) * int64_t{sizeof(float)} <= choices_.bytes);
  return s;
}

SliceScratch CudaOps::slice_scratch(const kernels::Experts& a) const {
  const int64_t entries = a.x.rows * a.ids.cols;
  SliceScratch s;
  s.places = groups_.base + kCounterBytes;
  // Results come when the codes of x have been used.
  s.x = codes_in(choices_, entries, a.x.cols);
  s.inner_codes = codes_in(inner_codes_, entries, a.inner);
  s.y = reinterpret_cast<float*>(choices_.base);
  GODWIT_ASSERT(kCounterBytes + place_bytes(a.x.rows, a.ids.cols, a.expert_count) <= groups_.bytes);
  GODWIT_ASSERT(entries * a.x.cols * int64_t{sizeof(float)} <= choices_.bytes);
  return s;
}

// The rows of each family by themselves.
void CudaOps::experts(const kernels::Experts& a) {
  const int64_t rows = a.x.rows, first = std::clamp<int64_t>(a.decode_rows, 0, rows);
  if (first > 0) decode_experts(part_of(a, 0, first));
  if (first == rows) return;
  const kernels::Experts prefill = part_of(a, first, rows - first);
  if (!device_.is_hopper() || !fits_slice(prefill)) return decode_experts(prefill);
  slice_experts(device_.stream(), prefill, nullptr, prefill.out, slice_scratch(prefill),
                device_.multiprocessors());
}

void CudaOps::decode_experts(const kernels::Experts& a) {
  if (fits_grouped(a, a.inner)) {
    grouped_experts(device_.stream(), a, nullptr, false, a.out, grouped_scratch(a, 0),
                    device_.multiprocessors());
    return;
  }
  // The table of experts lies on the device, their inner width is known from prepare(); narrower ones are
  // padded with zeros.
  const int64_t inner = dims_.expert_inner;
  const int64_t assignments = a.x.rows * a.ids.cols;
  ExpertScratch s;
  s.inner = reinterpret_cast<float*>(inner_.base);
  s.inner_width = inner;
  s.inner_stride = (inner + 3) / 4 * 4;
  GODWIT_ASSERT(assignments * s.inner_stride * int64_t{sizeof(float)} <= inner_.bytes);
  s.x = codes_in(codes_, a.x.rows, a.x.cols);
  s.inner_codes = codes_in(inner_codes_, assignments, inner);
  sm90::experts(device_.stream(), a, s);
}

void CudaOps::moe(const kernels::Moe& a) {
  const int64_t rows = a.experts.x.rows, first = std::clamp<int64_t>(a.experts.decode_rows, 0, rows);
  const auto part = [&a](int64_t begin, int64_t count, int64_t decode_rows) {
    kernels::Route route = a.route;
    for (View* v : {&route.x, &route.logits, &route.ids, &route.weights}) *v = v->row_range(begin, count);
    route.decode_rows = decode_rows;
    return kernels::Moe{route, part_of(a.experts, begin, count), part_of(a.shared, begin, count),
                        a.out.row_range(begin, count)};
  };
  if (first > 0) decode_moe(part(0, first, kernels::kAllRows));
  if (first == rows) return;
  kernels::Moe prefill = part(first, rows - first, 0);
  if (!device_.is_hopper() || !fits_slice(prefill.experts)) {
    prefill.route.decode_rows = kernels::kAllRows;
    return decode_moe(prefill);
  }
  route(prefill.route);
  prefill.shared.decode_rows = 0;
  View shared = prefill.shared.out;
  if (!dense_ffn(prefill.shared, &shared)) Ops::ffn(prefill.shared);
  slice_experts(device_.stream(), prefill.experts, &shared, prefill.out, slice_scratch(prefill.experts),
                device_.multiprocessors());
}

void CudaOps::decode_moe(const kernels::Moe& a) {
  const int64_t shared = a.shared.gate.out();
  const bool together = fits_grouped(a.experts, a.experts.inner) && shared <= dims_.shared_inner &&
                        a.shared.gate.data.dtype == a.experts.dtype && fits_grouped(a.experts, shared) &&
                        same_rows(a.experts.x, a.shared.x) && a.shared.limit == a.experts.limit;
  if (!together) return Ops::moe(a);
  const GroupedScratch scratch = grouped_scratch(a.experts, shared);
  const bool grouped =
      route_to_groups(device_.stream(), a.route, a.experts, &a.shared, scratch, device_.multiprocessors());
  if (!grouped) route(a.route);
  grouped_experts(device_.stream(), a.experts, &a.shared, grouped, a.out, scratch, device_.multiprocessors());
}

void CudaOps::kda_mix(const StepView& step, const kernels::KdaMix& a) {
  if (!fits_kda_mix(a)) return Ops::kda_mix(step, a);
  if (step.decode_sequences > 0) sm90::kda_mix(device_.stream(), step, a, device_.multiprocessors());
  const int64_t rows = step.rows - step.decode_rows;
  if (rows == 0) return;
  const auto prefill = [&](const View& v) { return v.row_range(step.decode_rows, rows); };
  if (step.replays > 0) {
    const kernels::KdaReplay replay{a.gates.beta.cols, a.norm.head_dim, a.conv.taps, a.conv.state};
    sm90::kda_replay(device_.stream(), step, replay, step.decode_sequences);
  }
  const kernels::KdaChunk chunk{a.conv.raw, a.gates, a.conv.state, a.norm.out};
  if (fits_chunk(chunk)) {
    GODWIT_ASSERT(chunk_bytes(rows, step.sequences - step.decode_sequences, a.gates.beta.cols,
                              dims_.kda_key) <= chunks_.bytes);
    return kda_mix_prefill(device_.stream(), step, a, chunks_.base);
  }
  const kernels::Linear both[] = {{prefill(a.forget.x), a.forget.w, prefill(a.forget.out), 0},
                                  {prefill(a.gate.x), a.gate.w, prefill(a.gate.out), 0}};
  linears(both);
  sm90::kda_conv_prefill(device_.stream(), step, a.conv);
  kda_chunk(step, {a.conv.out, a.gates, a.conv.state, a.norm.o});
  gated_norm({prefill(a.norm.o), prefill(a.norm.gate), a.norm.weight, a.norm.head_dim, a.norm.eps,
              prefill(a.norm.out)});
}

void CudaOps::dsa_project(const StepView& step, const kernels::DsaProject& a) {
  if (!fits_dsa_front(a)) return Ops::dsa_project(step, a);
  const bool indexes = !a.wq_b.empty();
  const int64_t decode = step.decode_rows;
  const kernels::Linear from_x[] = {{a.x, a.q_a, a.q_latent, decode},
                                    {a.x, a.kv_a, a.latent, decode},
                                    {a.x, a.weights_proj, a.index_weight, decode},
                                    {a.x, a.wk, a.index_key, decode},
                                    {a.x, a.gate, a.index_gate, decode}};
  linears(std::span(from_x).first(indexes ? 5 : 2));
  dsa_front(device_.stream(), step, a);
  const kernels::Linear from_latent[] = {{a.q_latent, a.q_b, a.q, decode},
                                         {a.q_latent, a.wq_b, a.index_query, decode}};
  linears(std::span(from_latent).first(indexes ? 2 : 1));
  head_linear({a.q, a.absorb_k, a.heads, a.query, decode});
}

float* CudaOps::partial(const kernels::MhcCollapse& a) const {
  GODWIT_ASSERT(boundary_bytes(a.x.rows, a.x.cols) <= partial_.bytes);
  return reinterpret_cast<float*>(partial_.base);
}

void CudaOps::mhc_boundary(const kernels::MhcBoundary& a) {
  const kernels::MhcExpand* expand = a.expand.y.empty() ? nullptr : &a.expand;
  if (!fits_boundary(expand, a.collapse, a.normed)) return Ops::mhc_boundary(a);
  forget_codes(a.normed);
  boundary(expand, a.collapse, a.norm_weight, a.normed, a.feeds_fp8);
}

void CudaOps::mhc_collapse(const kernels::MhcCollapse& a) {
  if (!fits_boundary(nullptr, a, {})) return sm90::mhc_collapse(device_.stream(), a);
  boundary(nullptr, a, nullptr, {}, false);
}

// The rows of each family by themselves, those of decode in turns; codes are theirs.
void CudaOps::boundary(const kernels::MhcExpand* expand, const kernels::MhcCollapse& a, const float* norm,
                       const View& normed, bool feeds_fp8) {
  const int64_t rows = a.x.rows;
  const int64_t decode = std::clamp<int64_t>(a.decode_rows, 0, rows);
  const auto part = [&](int64_t first, int64_t count, const auto& launch) {
    kernels::MhcCollapse c = a;
    for (View* v : {&c.streams, &c.mix, &c.x}) *v = v->row_range(first, count);
    kernels::MhcExpand e;
    if (expand) e = {expand->mix.row_range(first, count), expand->y.row_range(first, count), c.streams};
    launch(expand ? &e : nullptr, c, norm ? normed.row_range(first, count) : View{});
  };
  Quantized codes;
  if (feeds_fp8 && decode > 0) {
    codes = codes_in(normed_codes_, decode, normed.cols);
    ready_ = {normed.row_range(0, decode), codes, memory_.writes()};
  }
  for (int64_t first = 0; first < decode; first += kBoundaryRows) {
    const Quantized own = codes.rows_from(first);
    part(first, std::min(kBoundaryRows, decode - first),
         [&](const kernels::MhcExpand* e, const kernels::MhcCollapse& c, const View& to) {
           sm90::mhc_boundary(device_.stream(), e, c, norm, to, feeds_fp8 ? &own : nullptr, partial(c));
         });
  }
  if (decode == rows) return;
  part(decode, rows - decode,
       [&](const kernels::MhcExpand* e, const kernels::MhcCollapse& c, const View& to) {
         mhc_boundary_slice(device_.stream(), e, c, norm, to);
       });
}

const Quantized* CudaOps::ready_codes(const View& x) const {
  const bool same = same_rows(ready_.rows, x);
  return same && ready_.codes.codes != nullptr && ready_.writes == memory_.writes() ? &ready_.codes : nullptr;
}

void CudaOps::forget_codes(const View& written) {
  if (written.data == ready_.rows.data) ready_ = {};
}

}  // namespace godwit::sm90
