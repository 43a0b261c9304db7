// Where a slot keeps the parts of one KDA layer, and its conv window.
#pragma once

#include <deque>
#include <vector>

#include "kernels/ops/kda.h"

namespace godwit::kernels::reference {

class KdaSlot {
 public:
  KdaSlot(const KdaState& state, int32_t slot)
      : layout_(state), base_(state.base + int64_t{slot} * state.slot_stride) {}

  float* state() const { return at<float>(layout_.state_offset); }                  // [H, d, d]
  void* window() const { return at<void>(layout_.window_offset); }                  // [taps - 1, 3 W]
  void* pending_raw() const { return at<void>(layout_.pending_raw_offset); }        // [pending, 3 W]
  float* pending_key() const { return at<float>(layout_.pending_key_offset); }      // [pending, W]
  float* pending_delta() const { return at<float>(layout_.pending_delta_offset); }  // [pending, W]
  float* pending_decay() const { return at<float>(layout_.pending_decay_offset); }  // [pending, W]
  DType window_dtype() const { return layout_.window_dtype; }

 private:
  template <class T>
  T* at(int64_t offset) const {
    return static_cast<T*>(static_cast<void*>(base_ + offset));
  }

  KdaState layout_;
  std::byte* base_;
};

// The last taps - 1 raw rows, oldest first. Reads the slot's, or zeros at position 0; commit() writes back.
class ConvWindow {
 public:
  ConvWindow(const KdaSlot& slot, int32_t taps, int64_t channels, bool from_zero);

  // The row that came `age` rows before the next one, 1 = the newest.
  const std::vector<double>& back(int32_t age) const { return rows_[rows_.size() - age]; }
  void push(std::vector<double> raw);
  void commit() const;

 private:
  KdaSlot slot_;
  std::deque<std::vector<double>> rows_;  // [taps - 1][channels]
};

}  // namespace godwit::kernels::reference
