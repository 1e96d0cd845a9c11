// Messages for the person at the terminal or the journal. Always stderr; data goes to stdout.
// Prompts and answers are never logged above debug level.
#pragma once

#include <string_view>
#include <utility>

#include "base/format.h"

namespace nightsweep {

enum class LogLevel { debug, info, warning, error };

// Call once, from main. `color` as decided by --color and NO_COLOR. Under systemd (JOURNAL_STREAM)
// lines carry a <priority> prefix in place of colour.
void set_up_log(LogLevel least, bool color);

// Thread-safe.
void log_text(LogLevel level, std::string_view text);

// A line that is being redrawn on the terminal would be torn by a message: the owner of such a
// line registers how to wipe it. Null takes it back.
void set_log_line_wiper(void (*wipe)());

template <typename... Args>
void log_debug(fmt::format_string<Args...> text, Args&&... args) {
  log_text(LogLevel::debug, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log_text(LogLevel::info, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  log_text(LogLevel::warning, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
  log_text(LogLevel::error, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace nightsweep
