// A device whose two queues run late, in threads of their own, and in no order but the one that
// events make: what a GPU may do at its worst. Only moves and checks weights.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support/fake_device.h"

namespace nightsweep {

class AsyncDevice final : public FakeDevice {
 public:
  // obeys_events = false: the control. Such a device must be caught by whoever tests the waits.
  explicit AsyncDevice(bool obeys_events = true) : obeys_events_(obeys_events) {}
  ~AsyncDevice() override {
    operators_.stop();
    copies_.stop();
  }
  AsyncDevice(const AsyncDevice&) = delete;
  AsyncDevice& operator=(const AsyncDevice&) = delete;

  bool shares_host_memory() const override { return false; }
  uint64_t free_bytes() const override { return free_bytes_; }
  void set_free_bytes(uint64_t free_bytes) { free_bytes_ = free_bytes; }

  std::unique_ptr<DeviceMemory> allocate(size_t size_bytes) override {
    if (n_refusals_ > 0) {
      --n_refusals_;
      fail(ErrorKind::device, "refused by the test");
    }
    return FakeDevice::allocate(size_bytes);
  }
  std::unique_ptr<DeviceMemory> allocate_host(size_t size_bytes) override {
    if (size_bytes > host_bytes_left_) fail(ErrorKind::device, "refused by the test");
    host_bytes_left_ -= size_bytes;
    return FakeDevice::allocate(size_bytes);
  }
  // So many more calls of allocate() fail: others were faster.
  void refuse(uint32_t n_allocations) { n_refusals_ = n_allocations; }
  // What allocate_host() still gives.
  void set_host_bytes_left(uint64_t size_bytes) { host_bytes_left_ = size_bytes; }

  // From now on every call that can fail does, as on a GPU that the driver has lost; what was
  // queued has ended, and nothing of it touches memory any more.
  void lose() {
    is_lost_ = true;
    operators_.close();
    copies_.close();
  }

  void queue_copy(const std::byte* from, size_t size_bytes, std::byte* to) override {
    require_device();
    copies_.push([=] {
      // In pieces, so that a reader who does not wait sees half of it.
      const size_t half = size_bytes / 2;
      std::memcpy(to, from, half);
      std::this_thread::yield();
      std::memcpy(to + half, from + half, size_bytes - half);
    });
  }
  void pack(const MatrixView& file, std::byte* packed) override { repack(file, packed); }
  void repack(const MatrixView& file, std::byte* packed) override {
    require_device();
    operators_.push([this, file, packed] { FakeDevice::pack(file, packed); });
  }
  // An operator that reads packed weights when its turn comes; mismatches() counts what it finds.
  void check(const MatrixView& packed, std::string_view expected) {
    operators_.push([this, packed, expected] {
      for (size_t b = 0; b < expected.size(); ++b) {
        if ((packed.data[b] ^ kPackMark) == static_cast<std::byte>(expected[b])) continue;
        ++mismatches_;
        return;
      }
    });
  }
  uint32_t mismatches() const { return mismatches_; }

  std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<Event>(); }
  void record(DeviceEvent& event, WorkQueue queue) override {
    require_device();
    auto& state = static_cast<Event&>(event).state;
    const uint64_t number = ++state->recorded;
    of(queue).push([state, number] {
      const std::lock_guard lock(state->mutex);
      state->passed = number;
      state->has_passed.notify_all();
    });
  }
  void hold_back(WorkQueue queue, const DeviceEvent& event) override {
    require_device();
    auto& state = static_cast<const Event&>(event).state;
    if (!obeys_events_) return;
    of(queue).push([state, number = state->recorded.load()] { state->wait_for(number); });
  }
  void wait(const DeviceEvent& event) override {
    require_device();
    auto& state = static_cast<const Event&>(event).state;
    state->wait_for(state->recorded.load());
  }
  void synchronize() override {
    auto event = make_event();
    record(*event, WorkQueue::operators);
    wait(*event);
  }

 private:
  struct Event final : DeviceEvent {
    struct State {
      std::atomic<uint64_t> recorded = 0;
      std::mutex mutex;
      std::condition_variable has_passed;
      uint64_t passed = 0;
      void wait_for(uint64_t number) {
        std::unique_lock lock(mutex);
        has_passed.wait(lock, [&] { return passed >= number; });
      }
    };
    std::shared_ptr<State> state = std::make_shared<State>();
  };

  class Queue {
   public:
    explicit Queue(uint32_t seed) : random_(seed), thread_([this] { run(); }) {}
    void push(std::function<void()> task) {
      const std::lock_guard lock(mutex_);
      if (is_closed_) fail(ErrorKind::device, "the device is lost");
      tasks_.push_back(std::move(task));
      has_task_.notify_one();
    }
    // Takes nothing any more; returns when all has run.
    void close() {
      std::unique_lock lock(mutex_);
      is_closed_ = true;
      has_ended_.wait(lock, [this] { return tasks_.empty(); });
    }
    // Runs what is there first.
    void stop() {
      {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(nullptr);
        has_task_.notify_one();
      }
      thread_.join();
    }

   private:
    void run() {
      for (;;) {
        std::unique_lock lock(mutex_);
        has_task_.wait(lock, [this] { return !tasks_.empty(); });
        const std::function<void()> task = tasks_.front();
        lock.unlock();
        if (task == nullptr) return;
        if (random_() % 4 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
        }
        task();
        lock.lock();
        tasks_.pop_front();
        has_ended_.notify_all();
      }
    }
    std::mutex mutex_;
    std::condition_variable has_task_;
    std::condition_variable has_ended_;
    std::deque<std::function<void()>> tasks_;
    bool is_closed_ = false;
    std::mt19937 random_;
    std::thread thread_;
  };

  void require_device() const {
    if (is_lost_) fail(ErrorKind::device, "the device is lost");
  }
  Queue& of(WorkQueue queue) { return queue == WorkQueue::operators ? operators_ : copies_; }

  const bool obeys_events_;
  std::atomic<bool> is_lost_ = false;
  std::atomic<uint64_t> free_bytes_ = 0;
  std::atomic<uint64_t> host_bytes_left_ = UINT64_MAX;
  std::atomic<uint32_t> n_refusals_ = 0;
  std::atomic<uint32_t> mismatches_ = 0;
  Queue operators_{1};
  Queue copies_{2};
};

}  // namespace nightsweep
