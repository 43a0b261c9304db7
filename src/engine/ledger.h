// The ledger: every byte a rank will hold, priced from config.json and tensor headers before anything is
// loaded (design §8). `godwit plan` prints it and Engine allocates exactly it, so the two cannot disagree.
#pragma once

#include <string>
#include <vector>

#include "cache/cache.h"
#include "engine/ledger_line.h"
#include "model/glm5_next/model.h"
#include "schedule/scheduler.h"
#include "weights/totals.h"

namespace godwit::engine {

// Thread stacks, the log, requests in flight on the CPU: small beside a model, and nothing else is left to
// grow.
constexpr int64_t kRuntimeReserve = 8 << 20;
// What a GPU's libraries take and nobody here allocates, until a device has told: the driver's context with
// all kernels loaded, and cuBLASLt. Estimates.
constexpr int64_t kDriverContext = int64_t{1} << 30;
constexpr int64_t kLibraryBytes = int64_t{384} << 20;
// Of a recorded step: 16 of the tiny model, 2,128 launches, took 6 MiB in allocations of 2
// (bench/results/cuda-selftest-2026-12-01.txt).
constexpr int64_t kGraphNodeBytes = 4096;

// What the weights are: from the headers of a checkpoint, or from config.json alone.
struct LedgerModel {
  ModelConfig config;
  std::vector<TensorSpec> inventory;  // found_inventory() of the checkpoint, else make_inventory()
  Form form = Form::fp8;              // how quantised tensors of `inventory` are stored
};

// What an operator asks for.
struct LedgerSizes {
  int64_t context = 0;            // tokens a sequence may have; 0 = what model and memory allow
  int64_t max_sequences = 64;     // running at once
  int64_t max_waiting = 1024;     // beyond that submit() is refused with 429
  int64_t prefill_tokens = 256;   // prompt rows a step may carry; whole pages
  int64_t cache_tokens = 262144;  // without a budget: positions all pages together hold, at least one context
  int64_t host_cache = 0;  // bytes of host memory for prefixes and requests that had to leave the device
};

struct LedgerRequest : LedgerSizes {
  int64_t tp = 1, ep = 1;
  int64_t memory = 0;   // bytes a rank may use: pages and snapshots take what the rest leaves
  int64_t reserve = 0;  // bytes for what no other line has
  int64_t context_bytes =
      0;                  // that a device had in use before anything was placed; 0 = unknown: kDriverContext
  DType kv = DType::f32;  // f32 | bf16 | f8_e4m3
  int64_t draft = 0;      // draft rows of a verify; 0 = the draft block is not loaded
  bool vision = false;    // the vision tower is loaded
  bool host_apart = false;  // a device has memory of its own: host lines are not in its total
};

struct Ledger {
  // The sizes in force.
  schedule::ScheduleLimits schedule;
  model::ModelOptions model;
  int64_t memory = 0;  // the budget; 0 = none given

  std::vector<LedgerLine> lines;  // of the fullest rank
  std::vector<Adjustment> adjustments;
  model::StateLayout layout;
  int64_t token_bytes = 0;  // cache of one token: latents and pooled index keys
  int64_t shortfall = 0;    // bytes missing in `memory` for one sequence of full context; 0 = it fits

  int64_t total() const;                          // of the lines on the device
  int64_t host_total() const;                     // of the others; 0 when host and device are one
  int64_t bytes_of(std::string_view name) const;  // 0 when there is no such line
  // Sequences of so many tokens whose pages fit at once; max_sequences bounds what runs.
  int64_t sequences_at(int64_t tokens) const;
};

// usage when the request contradicts itself or the model. A budget that is too small is no error: see
// shortfall. `ops` prices its scratch; nullptr when the backend is not in this binary (its scratch is part of
// the reserve).
Result<Ledger> make_ledger(const LedgerModel& model, const LedgerRequest& request, const kernels::Ops* ops);

// For a ledger with a shortfall: changes of one setting each that make it fit, smallest first. May be empty.
std::vector<std::string> remedies(const LedgerModel& model, const LedgerRequest& request,
                                  const kernels::Ops* ops);

// Empty when a device that had `free_before` bytes free, its context made, holds what the ledger says within
// 2 % (design §8) now that `free_after` are left. Else what was promised, what is there, and what to do.
std::string broken_promise(const Ledger& ledger, int64_t free_before, int64_t free_after);

// "77.65 GiB"; below 1 GiB in MiB.
std::string readable_bytes(int64_t bytes);

}  // namespace godwit::engine
