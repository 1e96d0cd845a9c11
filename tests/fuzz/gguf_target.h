// What the fuzzer and the replay of its corpus do with bytes that claim to be the head of a model.
#pragma once

#include <cstddef>
#include <span>

namespace nightsweep {

// Parses and checks; true when the bytes are the head of a model that could run. Any exception but
// Error(model) leaves it, and is a finding.
bool try_gguf(std::span<const std::byte> head);

}  // namespace nightsweep
