#include <algorithm>
#include <cstring>

#include "kernels/cuda/memory.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/status.h"

namespace nightsweep::cuda {

namespace {

constexpr size_t kMostRows = 1024;  // of one launch
// Half a slot: jobs and edits of a launch fit one.
constexpr size_t kMostEdits = Staging::kSlotBytes / 2 / sizeof(LogitEdit);

}  // namespace

Picker::Picker(Staging& staging, cudaStream_t stream)
    : staging_(staging), stream_(stream), picks_(allocate_page_locked(kMostRows * sizeof(Pick))) {}

void Picker::pick(
    float* logits,
    uint32_t n_vocab,
    std::span<const PickRow> rows,
    std::span<Pick> picks) {
  while (!rows.empty()) {
    size_t n = 0;
    size_t n_edits = 0;
    while (n < std::min(rows.size(), kMostRows)) {
      n_edits += rows[n].edits.size();
      if (n > 0 && n_edits > kMostEdits) break;
      ++n;
    }
    pick_some(logits, n_vocab, rows.first(n), picks.first(n));
    rows = rows.subspan(n);
    picks = picks.subspan(n);
  }
}

void Picker::pick_some(
    float* logits,
    uint32_t n_vocab,
    std::span<const PickRow> rows,
    std::span<Pick> picks) {
  jobs_.clear();
  edits_.clear();
  for (const PickRow& row : rows) {
    jobs_.push_back(
        {.row = row.row,
         .inverse_temperature = row.inverse_temperature,
         .min_p = row.min_p,
         .top_k = row.top_k,
         .top_p = row.top_p,
         .uniform = row.uniform,
         .repetition_penalty = row.repetition_penalty,
         .first_edit = static_cast<uint32_t>(edits_.size()),
         .n_edits = static_cast<uint32_t>(row.edits.size())});
    edits_.insert(edits_.end(), row.edits.begin(), row.edits.end());
  }
  const PickJob* const jobs = staging_.leave(std::span<const PickJob>(jobs_));
  const LogitEdit* const edits = staging_.leave(std::span<const LogitEdit>(edits_));
  launch_pick(
      logits, n_vocab, jobs, static_cast<uint32_t>(jobs_.size()), edits,
      reinterpret_cast<Pick*>(picks_->data()), stream_);
  check(cudaStreamSynchronize(stream_), "waiting for the chosen tokens");
  std::memcpy(picks.data(), picks_->data(), rows.size() * sizeof(Pick));
}

}  // namespace nightsweep::cuda
