// Writes the seeds into a corpus folder: write_seeds tests/fuzz/corpus
#include <fstream>
#include <iostream>

#include "fuzz/gguf_seeds.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_seeds CORPUS\n";
    return 2;
  }
  for (const auto& [name, bytes] : nightsweep::gguf_seeds()) {
    std::ofstream file(std::string(argv[1]) + "/gguf/" + name, std::ios::binary);
    file << bytes;
    if (!file.flush()) return 1;
  }
  return 0;
}
