#include "runner/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "runner/command.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

std::vector<OptionSpec> test_specs() {
  return join(
      {{{.name = "set", .value = "KEY=JSON", .help = "", .repeatable = true},
        {.name = "output", .value = "FILE", .help = "", .letter = 'o'}},
       engine_options(),
       queue_options(),
       general_options()});
}

Arguments parse(const std::vector<std::string>& words) {
  return Arguments::parse(test_specs(), words);
}

TEST(Options, values_with_commas_stay_whole_and_repeat_in_order) {
  Arguments arguments = parse({"--set", "stop=[\"a,b\",\"c\"]", "in,put.jsonl", "--set=n=2"});
  EXPECT_EQ(arguments.all("set"), (std::vector<std::string>{"stop=[\"a,b\",\"c\"]", "n=2"}));
  EXPECT_EQ(arguments.operands(), (std::vector<std::string>{"in,put.jsonl"}));
}

TEST(Options, a_dash_is_an_operand_and_two_dashes_end_the_options) {
  EXPECT_EQ(parse({"-", "-o", "out"}).operands(), (std::vector<std::string>{"-"}));
  EXPECT_EQ(parse({"--", "--set"}).operands(), (std::vector<std::string>{"--set"}));
}

TEST(Options, an_empty_value_is_refused) {
  EXPECT_ERROR(ErrorKind::usage, (parse({"-o", ""})), "--output: expected FILE");
  EXPECT_ERROR(ErrorKind::usage, (parse({"--queue="})), "--queue: expected PATH");
  std::vector<OptionSpec> specs = {
      {.name = "text", .value = "S", .help = "", .may_be_empty = true}};
  EXPECT_EQ(Arguments::parse(specs, {"--text", ""}).find("text"), "");
}

TEST(Options, mistakes_are_refused_by_name) {
  EXPECT_ERROR(ErrorKind::usage, (parse({"--nosuch"})), "nosuch");
  EXPECT_ERROR(ErrorKind::usage, (parse({"-o", "a", "--output", "b"})), "output is given twice");
  EXPECT_ERROR(ErrorKind::usage, (parse({"--ram"})), "ram");
  EXPECT_ERROR(ErrorKind::usage, (read_common_options(parse({"--ram", "much"}))), "--ram");
  EXPECT_ERROR(ErrorKind::usage, (read_common_options(parse({"--kv", "q4"}))), "f32, f16 or q8_0");
  EXPECT_ERROR(ErrorKind::usage, (read_common_options(parse({"--threads", "0"}))), "--threads");
  EXPECT_ERROR(ErrorKind::usage, (read_common_options(parse({"--device", "gpu"}))), "cuda:N");
}

TEST(Options, command_line_wins_over_environment_over_file) {
  TemporaryFolder folder;
  std::ofstream(folder.path("c.toml")) << "threads = 3\nram = \"1GiB\"\nkv = \"f32\"\n";
  ::setenv("NIGHTSWEEP_THREADS", "5", 1);
  ::setenv("NIGHTSWEEP_RAM", "2GiB", 1);
  CommonOptions options =
      read_common_options(parse({"--config", folder.path("c.toml"), "--threads", "7"}));
  ::unsetenv("NIGHTSWEEP_THREADS");
  ::unsetenv("NIGHTSWEEP_RAM");
  EXPECT_EQ(options.n_threads, 7U);
  EXPECT_EQ(options.ram_bytes, 2ULL << 30U);
  EXPECT_EQ(options.kv_type, KvType::f32);
}

TEST(Options, a_value_names_where_it_came_from) {
  TemporaryFolder folder;
  std::ofstream(folder.path("c.toml")) << "\nram = \"much\"\n";
  EXPECT_ERROR(
      ErrorKind::usage, (read_common_options(parse({"--config", folder.path("c.toml")}))),
      "c.toml:2: ram");
}

TEST(Command, a_mistyped_name_finds_its_neighbour) {
  std::vector<std::string> names = {"run", "submit", "status", "results"};
  EXPECT_EQ(nearest_name("rnu", names), "run");
  EXPECT_EQ(nearest_name("sumbit", names), "submit");
  EXPECT_EQ(nearest_name("frobnicate", names), "");
}

}  // namespace
}  // namespace nightsweep
