// Cache: what travels between the tiers, step by step.
#include <algorithm>

#include "cache/cache.h"

namespace godwit::cache {

// The source of a copy that is planned (outs run before anything is written), or that will not be made.
void Cache::give_back(const CopyQueue::Out& out) {
  switch (out.source) {
    case CopyQueue::Source::page:
      leaves_[static_cast<size_t>(out.move.from)] = false;
      --leaving_pages_;
      pages_.give(out.move.from);
      break;
    case CopyQueue::Source::shared_page:
      tree_.release(out.move.from);
      break;
    case CopyQueue::Source::snapshot:
      --leaving_snapshots_;
      snapshots_.give(out.move.from);
      break;
    case CopyQueue::Source::slot:
      --leaving_slots_;
      slots_.give(out.move.from);
      break;
  }
  if (out.host_slot == kNone) host_.written(out.move);
}

void Cache::plan_out() {
  give_back(copies_.plan_out());
}

void Cache::plan_copies() {
  spare_snapshots();
  while (copies_.can_plan_out()) plan_out();
  copies_.plan_ins();
}

bool Cache::swap_out(Lease& lease) {
  GODWIT_ASSERT(lease.held() && !lease.loading() && lease.restore == kNone && lease.pending == kNone);
  const int32_t host_slot = host_.take(lease.pages.size(), lease.host_pages);
  if (host_slot == kNone) return false;
  copies_.push_out({Move::What::slot, Move::Way::out, lease.slot, host_slot, 0}, CopyQueue::Source::slot,
                   host_slot);
  ++leaving_slots_;
  for (size_t i = 0; i < lease.pages.size(); ++i) {
    const int32_t page = lease.pages[i];
    const bool shared = i < static_cast<size_t>(lease.shared);  // the lease's reference is the copy's
    if (!shared) {
      leaves_[static_cast<size_t>(page)] = true;
      ++leaving_pages_;
    }
    copies_.push_out({Move::What::page, Move::Way::out, page, lease.host_pages[i], 0},
                     shared ? CopyQueue::Source::shared_page : CopyQueue::Source::page, host_slot);
  }
  lease.pages.clear();
  lease.shared = lease.in_table = 0;
  lease.slot = kNone;
  lease.host_slot = host_slot;
  return true;
}

bool Cache::swap_in(Lease& lease, int64_t tokens) {
  GODWIT_ASSERT(lease.swapped());
  const int64_t pages = std::max(pages_for(tokens), static_cast<int64_t>(lease.host_pages.size()));
  if (!make_room(pages, 1)) return false;
  lease.slot = slots_.take();
  for (int64_t i = 0; i < pages; ++i) lease.pages.push_back(pages_.take());
  for (size_t i = 0; i < lease.host_pages.size(); ++i)
    copies_.push_in({Move::What::page, Move::Way::in, lease.host_pages[i], lease.pages[i], lease.slot});
  copies_.push_in({Move::What::slot, Move::Way::in, lease.host_slot, lease.slot, lease.slot});
  return true;
}

void Cache::retreat(Lease& lease) {
  GODWIT_ASSERT(lease.loading() && lease.host_slot != kNone && lease.shared == 0);
  copies_.drop_ins(lease.slot);
  for (const int32_t page : lease.pages) pages_.give(page);
  lease.pages.clear();
  lease.in_table = 0;
  slots_.give(lease.slot);
  lease.slot = kNone;
}

// A request that has ended, or whose copies are not wanted: those that are not made yet never will be.
void Cache::forget_host(Lease& lease) {
  copies_.drop_outs([&](const CopyQueue::Out& out) {
    if (out.host_slot != lease.host_slot) return false;
    give_back(out);
    return true;
  });
  host_.give(lease.host_pages, lease.host_slot);
  lease.host_pages.clear();
  lease.host_slot = kNone;
}

void Cache::stop_loading(Lease& lease) {
  copies_.drop_ins(lease.slot);
  if (lease.host_slot != kNone) {
    forget_host(lease);
  } else {
    host_.let_go(lease.host_pages.back(), lease.host_snapshot);
    lease.host_pages.clear();
  }
}

void Cache::settle(Lease& lease, const Prompt& prompt) {
  GODWIT_ASSERT(lease.loading() && arrived(lease));
  const bool prefix = lease.host_slot == kNone;
  stop_loading(lease);
  if (!prefix) return;
  share(lease, prompt, static_cast<int32_t>(lease.cached / kPageTokens));
  const int32_t page = lease.pages[static_cast<size_t>(lease.shared) - 1];
  const bool waits = lease.restore == lease.incoming;  // no row was planned yet
  if (tree_.node(page).snapshot == kNone) {
    int64_t before = lease.shared - 1;  // blocks up to the snapshot before this one
    while (before > 0 && tree_.node(lease.pages[static_cast<size_t>(before) - 1]).snapshot == kNone) --before;
    tree_.attach(page, lease.incoming, before * kPageTokens);
  } else {
    snapshots_.give(lease.incoming);  // somebody computed it meanwhile: the same bits
  }
  lease.incoming = kNone;
  if (!waits) return;
  lease.restore = tree_.node(page).snapshot;
  tree_.pin(lease.restore);
}

void Cache::drop_outs_of_prefixes() {
  copies_.drop_outs([&](const CopyQueue::Out& out) {
    if (out.host_slot != kNone) return false;
    give_back(out);
    return true;
  });
}

void Cache::distrust_host() {
  drop_outs_of_prefixes();
  host_.flush();
}

}  // namespace godwit::cache
