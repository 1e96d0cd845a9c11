#include "runner/config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

class ConfigFile : public testing::Test {
 protected:
  Config read(const std::string& text) {
    std::ofstream(folder_.path("c.toml")) << text;
    return read_config(folder_.path("c.toml"));
  }
  TemporaryFolder folder_;
};

TEST_F(ConfigFile, values_and_models_are_read) {
  Config config = read(
      "threads = 2\nquiet = true\n[models]\nsmall = \"a.gguf\"\n"
      "large = {file = \"/m/b.gguf\", defaults = {temperature = 0.5, stop = [\"x,y\"]}}\n");
  EXPECT_EQ(config.values.at("threads").text, "2");
  EXPECT_EQ(config.values.at("quiet").text, "true");
  EXPECT_EQ(config.models.at("small").file, folder_.path("a.gguf"));
  const NamedModel& large = config.models.at("large");
  EXPECT_EQ(large.file, "/m/b.gguf");
  ASSERT_EQ(large.defaults.size(), 2U);
  for (const auto& [key, value] : large.defaults)
    EXPECT_EQ(value, key == "stop" ? Json(Json::Array{"x,y"}) : Json(0.5));
}

TEST_F(ConfigFile, what_is_not_known_is_refused_with_its_line) {
  EXPECT_ERROR(ErrorKind::usage, read("\nthread = 2\n"), "c.toml:2: thread: unknown key");
  EXPECT_ERROR(ErrorKind::usage, (read("[models]\na = {fiel = \"x\"}\n")), "models.a.fiel");
  EXPECT_ERROR(ErrorKind::usage, (read("[models]\na = {draft = \"x\"}\n")), "not in this version");
  EXPECT_ERROR(ErrorKind::usage, read("threads = \"2\"\n"), "expected an integer, found a string");
  EXPECT_ERROR(ErrorKind::usage, read("threads = = 2\n"), "c.toml:1");
  EXPECT_ERROR(ErrorKind::usage, read_config(folder_.path("nowhere.toml")), "nowhere.toml");
}

}  // namespace
}  // namespace nightsweep
