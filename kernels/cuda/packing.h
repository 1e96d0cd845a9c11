// Weights of the host on their way into the GPU's layout: copied in pieces by a stream of their
// own, packed by the compute stream, so that the next piece is copied while one is packed.
#pragma once

#include <array>
#include <memory>

#include "kernels/cuda/linear.h"
#include "kernels/cuda/stream.h"

namespace nightsweep::cuda {

class Packing {
 public:
  static constexpr size_t kPieceBytes = size_t{16} << 20;
  static constexpr size_t kPieces = 2;

  Packing(const LinearOperator& linear, const Stream& compute, const Stream& copies);

  // See Device::pack().
  void pack(const MatrixView& file, std::byte* packed);

 private:
  struct Piece {
    std::unique_ptr<DeviceMemory> raw;
    Event filled;
    Event used;
  };

  const LinearOperator& linear_;
  const Stream& compute_;
  const Stream& copies_;
  std::array<Piece, kPieces> pieces_;
  size_t next_ = 0;
};

}  // namespace nightsweep::cuda
