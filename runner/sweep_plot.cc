#include "runner/sweep_plot.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace nightsweep {

namespace {

constexpr double kLeft = 70;
constexpr double kTop = 50;
constexpr double kHeight = 300;
constexpr double kCaseWidth = 90;
constexpr double kBarWidth = 44;

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
      escaped(text));
}

// Tokens a second on a logarithmic axis: cases lie a hundredfold apart.
struct Axis {
  double low = 1;
  double high = 10;

  void take(double value) {
    if (value <= 0) return;
    const double decade = std::floor(std::log10(value));
    low = is_empty ? std::pow(10, decade) : std::min(low, std::pow(10, decade));
    high = is_empty ? std::pow(10, decade + 1) : std::max(high, std::pow(10, decade + 1));
    is_empty = false;
  }
  double y(double value) const {
    const double part = std::log10(std::max(value, low) / low) / std::log10(high / low);
    return kTop + kHeight * (1 - part);
  }
  bool is_empty = true;
};

}  // namespace

std::string sweep_plot(const std::string& title, const std::vector<SweepCase>& cases) {
  Axis axis;
  for (const SweepCase& one : cases) {
    axis.take(one.decode_tps);
    axis.take(one.n_sequences / std::max(one.predicted_sweep_s, 1e-9));
    axis.take(one.limit_tps());
  }
  const double width = kLeft + kCaseWidth * static_cast<double>(cases.size()) + 30;
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      std::max(width, 420.0), kTop + kHeight + 75);
  svg += text_at(kLeft, 20, "start", title);
  svg += text_at(kLeft, 36, "start", "tokens/s in decoding");
  const int n_decades = static_cast<int>(std::lround(std::log10(axis.high / axis.low)));
  for (int decade = 0; decade <= n_decades; ++decade) {
    const double value = axis.low * std::pow(10, decade);
    svg += format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", kLeft,
        axis.y(value), width - 20, axis.y(value));
    svg += text_at(kLeft - 8, axis.y(value) + 4, "end", format("{:g}", value));
  }
  std::string predicted;
  std::string limit;
  for (size_t i = 0; i < cases.size(); ++i) {
    const SweepCase& one = cases[i];
    const double middle = kLeft + kCaseWidth * (static_cast<double>(i) + 0.5);
    const double top = axis.y(one.decode_tps);
    svg += format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#4878b0\"/>\n",
        middle - kBarWidth / 2, top, kBarWidth, kTop + kHeight - top);
    svg += text_at(middle, top - 6, "middle", format("{:.4g}", one.decode_tps));
    svg += text_at(middle, kTop + kHeight + 16, "middle", format("{}", one.n_sequences));
    // As wide as the bar: a single case has a line too.
    const auto mark = [&](std::string& points, double value) {
      for (const double x : {middle - kBarWidth / 2, middle + kBarWidth / 2})
        points += format("{:.1f},{:.1f} ", x, axis.y(value));
    };
    mark(predicted, one.n_sequences / std::max(one.predicted_sweep_s, 1e-9));
    if (one.limit_tps() > 0) mark(limit, one.limit_tps());
  }
  const auto line = [&](const std::string& points, const char* color, const char* dashes) {
    if (points.empty()) return;
    svg += format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
        "stroke-dasharray=\"{}\"/>\n",
        points, color, dashes);
  };
  line(predicted, "#d08020", "none");
  line(limit, "#a02020", "6 4");
  const double legend = kTop + kHeight + 38;
  svg += text_at(kLeft, legend, "start", "sequences in a sweep");
  const auto key = [&](double x, const char* color, const char* name) {
    svg += format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"10\" fill=\"{}\"/>\n", x,
        legend + 10, color);
    svg += text_at(x + 20, legend + 19, "start", name);
  };
  key(kLeft, "#4878b0", "measured");
  key(kLeft + 95, "#d08020", "predicted");
  if (!limit.empty()) key(kLeft + 190, "#a02020", "link and disk allow");
  return svg + "</svg>\n";
}

}  // namespace nightsweep
