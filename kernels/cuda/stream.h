// Owners of a stream and of an event.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/status.h"

namespace nightsweep::cuda {

class Stream {
 public:
  Stream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  void wait(const char* for_what) const { check(cudaStreamSynchronize(stream_), for_what); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Marks a place in a stream. Waiting for one that was never recorded passes at once.
class Event {
 public:
  enum class Notes { nothing, time };
  explicit Event(Notes notes = Notes::nothing) {
    const unsigned flags = notes == Notes::time ? cudaEventDefault : cudaEventDisableTiming;
    check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)cudaEventDestroy(event_); }
  void record(const Stream& on) { check(cudaEventRecord(event_, on.get()), "cudaEventRecord"); }
  void hold_back(const Stream& stream) const {
    check(cudaStreamWaitEvent(stream.get(), event_), "cudaStreamWaitEvent");
  }
  void wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  // REQUIRES: both note the time and have passed.
  double seconds_until(const Event& later) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, event_, later.event_), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace nightsweep::cuda
