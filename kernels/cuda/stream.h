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
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)cudaEventDestroy(event_); }
  void record(const Stream& on) { check(cudaEventRecord(event_, on.get()), "cudaEventRecord"); }
  void hold_back(const Stream& stream) const {
    check(cudaStreamWaitEvent(stream.get(), event_), "cudaStreamWaitEvent");
  }
  void wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace nightsweep::cuda
