// EXPECT_MODEL_ERROR(expression, part): it throws Error(model) with `part` in its text.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace nightsweep {

// The text of the Error(kind) that `call` ends with; empty when it does not.
template <typename Call>
std::string text_of_error(ErrorKind kind, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace nightsweep

#define EXPECT_ERROR(kind, expression, part)                                             \
  do {                                                                                   \
    const std::string error_text =                                                       \
        ::nightsweep::text_of_error(kind, [&] { static_cast<void>(expression); });       \
    EXPECT_NE(error_text.find(part), std::string::npos)                                  \
        << "expected \"" << (part) << "\" in the error, found \"" << error_text << "\""; \
  } while (false)

#define EXPECT_MODEL_ERROR(expression, part) \
  EXPECT_ERROR(::nightsweep::ErrorKind::model, expression, part)
