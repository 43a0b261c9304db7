#include "step_builder.h"

#include "base/assert.h"

namespace godwit::ops_test {

Step::Step(Side& side, const std::vector<SequenceSpec>& list, const std::vector<int32_t>& ids) : specs(list) {
  std::vector<kernels::Sequence> sequences;
  std::vector<int32_t> row_sequence;
  std::vector<int32_t> pages;
  for (const SequenceSpec& s : specs) {
    const bool decode = kernels::is_decode_family(s.kind);
    GODWIT_ASSERT(!decode || view.rows == view.decode_rows);
    kernels::Sequence q;
    q.first = s.first;
    q.row = view.rows;
    q.rows = s.rows;
    q.slot = s.slot;
    q.page_offset = static_cast<int32_t>(pages.size());
    q.replay = s.replay;
    q.kind = s.kind;
    row_sequence.insert(row_sequence.end(), static_cast<size_t>(s.rows), view.sequences);
    pages.insert(pages.end(), s.pages.begin(), s.pages.end());
    sequences.push_back(q);
    view.rows += s.rows;
    ++view.sequences;
    if (s.replay > 0) ++view.replays;
    if (!decode) continue;
    view.decode_rows += s.rows;
    ++view.decode_sequences;
  }
  view.sequence = side.upload(sequences);
  view.row_sequence = side.ints(row_sequence);
  view.ids = side.ints(ids);
  view.pages = side.ints(pages);
}

}  // namespace godwit::ops_test
