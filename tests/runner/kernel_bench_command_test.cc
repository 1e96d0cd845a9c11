// `bench kernels` as its users meet it. Its times are tested in tests/kernels/kernel_bench_test.cc:
// the shapes of large models take minutes on a CPU.
#include <gtest/gtest.h>

#include "support/program.h"

namespace nightsweep {
namespace {

class KernelBenchProgram : public ProgramTest {};

TEST_F(KernelBenchProgram, an_unknown_shape_is_refused_with_those_there_are) {
  const Outcome outcome = run({"bench", "kernels", "--device", "cpu", "--only", "9B"});
  EXPECT_EQ(outcome.code, 2);
  for (const char* part : {"--only 9B", "8B Q4_K_M", "8B Q8_0", "70B Q4_K_M", "attention"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " in " << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST_F(KernelBenchProgram, a_number_of_rows_that_is_none_is_refused) {
  for (const char* rows : {"0", "x", "1,,2", "5000", ""}) {
    const Outcome outcome = run({"bench", "kernels", "--device", "cpu", "--batch", rows});
    EXPECT_EQ(outcome.code, 2) << rows;
    EXPECT_NE(outcome.err.find("--batch"), std::string::npos) << outcome.err;
  }
}

TEST_F(KernelBenchProgram, what_bench_does_not_know_is_refused_with_what_it_knows) {
  const Outcome outcome = run({"bench", "kernel"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("links, sweep, kernels, tokenize or render"), std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace nightsweep
