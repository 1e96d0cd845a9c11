#include "base/hash.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace nightsweep {

struct Sha256::State {
  EVP_MD_CTX* context = nullptr;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  state_->context = EVP_MD_CTX_new();
  if (state_->context == nullptr ||
      EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) {
    fail(ErrorKind::internal, "libcrypto has no SHA-256");
  }
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(state_->context);
}

void Sha256::add(const void* data, size_t size_bytes) {
  EVP_DigestUpdate(state_->context, data, size_bytes);
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context, digest.data(), &size);
  std::string text;
  for (unsigned int i = 0; i < size; ++i)
    text += format("{:02x}", digest[i]);
  return text;
}

std::string sha256_of_file(const std::string& path, ErrorKind kind) {
  constexpr size_t kPieceBytes = size_t{256} << 10;
  FileDescriptor fd = open_for_reading(path, kind);
  std::vector<char> piece(kPieceBytes);
  Sha256 hash;
  for (;;) {
    ssize_t n = ::read(fd.value(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(kind, errno, path);
    if (n == 0) return hash.hex();
    hash.add(piece.data(), static_cast<size_t>(n));
  }
}

}  // namespace nightsweep
