// Where the rows of a prompt slice lie while experts work on them: each choice of an expert that is held has
// a place, those of an expert beside each other, in ascending expert id. Groups are up to kGroupRows places
// of one expert.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/device/tensor_map.h"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

constexpr int kGroupRows = 256;

struct PlaceGroup {
  int32_t expert, first, rows;  // rows: 1 … kGroupRows
};

struct Places {
  Rows<const int32_t> ids;  // [T, k]
  int32_t rows, chosen;
  int32_t first, held;  // experts of this rank
  const kernels::ExpertWeights* experts;
  TensorMap up_model, down_model;  // of the weights of any expert

  int32_t blocks;     // that count; each has as many choices
  int32_t* counts;    // [blocks, held]
  int32_t* place;     // [T k]; -1: of another rank
  int32_t* groups;    // how many
  PlaceGroup* group;  //
  TensorMap* maps;    // [held, 3]: gate, up, down
};

constexpr int kPlaceBlocks = 128;  // at most
constexpr int64_t most_place_groups(int64_t entries, int64_t experts) {
  return entries / kGroupRows + (entries < experts ? entries : experts);
}
// Lays the arrays out in place_bytes() of scratch, aligned to 128 bytes.
void lay_out(Places& a, void* scratch);
void find_places(cudaStream_t stream, const Places& a);

}  // namespace godwit::sm90
