// The weight stream of a device whose memory is not the host's.
//
//   page cache, locked in place ─────────────┐
//   file ──> host memory, page-locked, once ─┤
//   file ──> host ring, in every sweep ──────┴─> device ring ──> repacked ──> operators
//                                                    once ──> packed, resident ──┘
//
// What streams crosses the link as it is in the file. An operator that repacks it is queued when a
// slice is acquired; then its ring bytes are free. A slice that is to be resident comes like the
// others in the first sweep and is repacked to where it stays; any other into a scratch, written
// and read by operators alone, in their order. The scratch holds one slice, or all of a window:
// leases that overlap lie there one behind the other, and once all have ended it begins anew. Where
// everything is resident nothing needs a ring: it is read and packed at once.
//
// Memory of the device that others want is given back: when less of it is free than half of what
// was left at the start (of 384 MiB where that was more), pieces of the resident part stream from
// the next sweep on, and come back when there is room again. Those pieces come from the page cache
// where that is locked in place, and else from the disk: what the host keeps is chosen at the
// start.
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
