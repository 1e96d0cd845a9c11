// The service manager's end of $NOTIFY_SOCKET.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"

namespace nightsweep {

class NotifySocket {
 public:
  // "@NAME": an abstract socket.
  explicit NotifySocket(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (path[0] == '@') address.sun_path[0] = '\0';
    auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    EXPECT_EQ(::bind(fd_.value(), reinterpret_cast<sockaddr*>(&address), size), 0);
  }

  // Messages since the last call.
  std::vector<std::string> received() {
    std::vector<std::string> all;
    char buffer[4096];
    for (;;) {
      ssize_t n = ::recv(fd_.value(), buffer, sizeof buffer, 0);
      if (n < 0) return all;
      all.emplace_back(buffer, static_cast<size_t>(n));
    }
  }

 private:
  FileDescriptor fd_;
};

}  // namespace nightsweep
