// Models that nobody has trained: a named shape, a type of tensors, and made-up weights. For
// planning without a file, and for measuring speed, which does not ask what the numbers are.
#pragma once

#include <functional>
#include <string>

#include "engine/gguf.h"

namespace nightsweep {

// "llama-70b:Q4_K_M". The part behind the colon is a tensor type (F16, Q8_0, Q4_K, ...), or Q4_K_M
// or Q5_K_M: as llama.cpp mixes them, Q6_K for the head, some values and some downs. A vocabulary
// of made-up pieces, so that everything that opens a model can. Throws Error(usage) that lists what
// is known.
GgufModel synthetic_model(const std::string& name);

// Writes the same as a file of sound blocks around zero; a call of `progress` a tensor says how
// many bytes are done of how many. Throws Error(storage), also beforehand when the disk has no
// room.
void write_synthetic_model(
    const std::string& name,
    const std::string& path,
    const std::function<void(uint64_t done, uint64_t total)>& progress = {});

// Random bytes as sound blocks of a type, about so many.
std::string synthetic_blocks(QuantType type, uint64_t about_bytes);

std::string known_shapes();  // "llama-1b, llama-3b, ...": for messages

}  // namespace nightsweep
