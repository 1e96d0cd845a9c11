#include "runner/sweep_plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace nightsweep {
namespace {

// Points of the line of this color; 0: there is none.
long n_points(const std::string& svg, const std::string& color) {
  const size_t at = svg.find("stroke=\"" + color + "\"");
  if (at == std::string::npos) return 0;
  const size_t begin = svg.rfind("points=\"", at);
  return std::count(
      svg.begin() + static_cast<ptrdiff_t>(begin), svg.begin() + static_cast<ptrdiff_t>(at), ',');
}

TEST(SweepPlot, one_case_has_its_lines_too) {
  SweepCase one{.n_sequences = 64};
  one.decode_tps = 150;
  one.predicted_sweep_s = 0.4;
  one.traffic_s = 0.38;
  const std::string svg = sweep_plot("a <title>", {one});
  EXPECT_EQ(n_points(svg, "#d08020"), 2);
  EXPECT_EQ(n_points(svg, "#a02020"), 2);
  EXPECT_NE(svg.find("a &lt;title&gt;"), std::string::npos);
  EXPECT_EQ(n_points(sweep_plot("", {one, one, one}), "#d08020"), 6);
}

TEST(SweepPlot, what_nothing_limits_has_no_limit) {
  SweepCase one{.n_sequences = 1};
  one.decode_tps = 10;
  one.predicted_sweep_s = 0.1;
  EXPECT_EQ(n_points(sweep_plot("", {one}), "#a02020"), 0);
}

}  // namespace
}  // namespace nightsweep
