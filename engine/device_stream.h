// The weight stream of a device whose memory is not the host's.
//
//   file ──> packed, in the device's memory                        resident
//   file ──> host memory, page-locked, once ─┐
//   file ──> host ring, in every sweep ──────┴─> device ring ──> repacked ──> operators
//
// What streams crosses the link as it is in the file. An operator that repacks it into a scratch of
// one slice is queued when a slice is acquired; then its ring bytes are free. The scratch is
// written and read by operators alone, in their order; so one lease at a time shows streamed
// weights.
#pragma once

#include <memory>

#include "engine/weight_stream.h"

namespace nightsweep {

// As WeightStream::open(), whatever device.shares_host_memory() says.
std::unique_ptr<WeightStream> open_device_stream(
    const GgufModel& model,
    const WeightPlan& plan,
    Device& device,
    const StreamOptions& options,
    const FileReaderFactory& open_reader);

// The smallest ring in the device's memory for these slices.
uint64_t min_device_ring_bytes(const WeightPlan& plan);

}  // namespace nightsweep
