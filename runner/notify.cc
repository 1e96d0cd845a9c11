#include "runner/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace nightsweep {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before threads
  return value == nullptr ? "" : value;
}

}  // namespace

ServiceNotifier::ServiceNotifier(std::string socket_path, uint64_t watchdog_us)
    : socket_path_(std::move(socket_path)), watchdog_us_(watchdog_us) {}

ServiceNotifier ServiceNotifier::from_environment() {
  std::string pid = environment("WATCHDOG_PID");
  bool is_for_us = pid.empty() || pid == std::to_string(::getpid());
  std::string interval = environment("WATCHDOG_USEC");
  uint64_t watchdog_us =
      is_for_us ? std::strtoull(interval.c_str(), nullptr, 10) : 0;  // 0 also for what is no number
  return {environment("NOTIFY_SOCKET"), watchdog_us};
}

void ServiceNotifier::send(std::string_view message) {
  if (socket_path_.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, socket_path_.data(), socket_path_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_path_.size());
  FileDescriptor fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ssize_t n = -1;
  if (fd.is_open()) {
    n = ::sendto(
        fd.value(), message.data(), message.size(), MSG_NOSIGNAL,
        reinterpret_cast<const sockaddr*>(&address), size);
  }
  if (n < 0) log_debug("{}: {}", socket_path_, errno_text(errno));
}

void ServiceNotifier::ready() {
  send("READY=1");
}

void ServiceNotifier::stopping() {
  send("STOPPING=1");
}

void ServiceNotifier::status(std::string_view text) {
  if (text == last_status_) return;
  last_status_ = text;
  send(format("STATUS={}", text));
}

void ServiceNotifier::alive() {
  constexpr int kPerInterval = 4;
  if (watchdog_us_ == 0) return;
  auto now = std::chrono::steady_clock::now();
  if (now - last_alive_ < std::chrono::microseconds(watchdog_us_ / kPerInterval)) return;
  last_alive_ = now;
  send("WATCHDOG=1");
}

void ServiceNotifier::expect_silence(double seconds) {
  auto us = static_cast<uint64_t>(seconds * 1e6);
  send(format("EXTEND_TIMEOUT_USEC={}", us));
  if (watchdog_us_ != 0 && us > watchdog_us_) send(format("WATCHDOG_USEC={}", us));
}

void ServiceNotifier::end_silence() {
  if (watchdog_us_ == 0) return;
  send(format("WATCHDOG_USEC={}", watchdog_us_));
  send("WATCHDOG=1");
}

}  // namespace nightsweep
