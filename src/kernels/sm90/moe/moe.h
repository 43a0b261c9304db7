// What the launches of an MoE layer share on the host.
#pragma once

#include "kernels/sm90/moe/choose.cuh"
#include "kernels/sm90/moe/groups.cuh"

namespace godwit::sm90 {

Chooser chooser_of(const kernels::Route& a);
void choose_experts(cudaStream_t stream, const Chooser& a, int64_t rows);
// The same and plan_groups() in one launch; `ended`: a counter, 0 between launches.
void choose_groups(cudaStream_t stream, const Chooser& a, const Choice& choice, int32_t* ended);
void plan_groups(cudaStream_t stream, const Choice& a);

// Where a layer's groups lie in `scratch`, and what they are made of.
Choice choice_of(const kernels::Experts& a, const kernels::Ffn* shared, const GroupedScratch& scratch);

}  // namespace godwit::sm90
