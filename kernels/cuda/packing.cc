#include "kernels/cuda/packing.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/memory.h"

namespace nightsweep::cuda {

Packing::Packing(const LinearOperator& linear, const Stream& compute, const Stream& copies)
    : linear_(linear), compute_(compute), copies_(copies) {
  for (Piece& piece : pieces_)
    piece.raw = allocate_on_gpu(kPieceBytes);
}

void Packing::pack(const MatrixView& file, std::byte* packed) {
  const size_t row_bytes = quant_bytes(file.type, file.n_cols);
  const auto n_rows_at_once =
      static_cast<uint32_t>(kPieceBytes / row_bytes / kPanelRows * kPanelRows);
  if (n_rows_at_once == 0) {
    fail(ErrorKind::internal, "{} rows of {} bytes do not fit a piece", kPanelRows, row_bytes);
  }
  for (uint32_t first = 0; first < file.n_rows; first += n_rows_at_once) {
    MatrixView rows = file;
    rows.n_rows = std::min(n_rows_at_once, file.n_rows - first);
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % kPieces;
    piece.used.hold_back(copies_);
    check(
        cudaMemcpyAsync(
            piece.raw->data(), file.data + first * row_bytes, rows.n_rows * row_bytes,
            cudaMemcpyHostToDevice, copies_.get()),
        format("copying {} weight rows of {} bytes", rows.n_rows, row_bytes));
    piece.filled.record(copies_);
    piece.filled.hold_back(compute_);
    rows.data = piece.raw->data();
    linear_.pack(
        rows, packed + LinearOperator::packed_bytes(file.type, first, file.n_cols), compute_.get());
    piece.used.record(compute_);
  }
}

}  // namespace nightsweep::cuda
