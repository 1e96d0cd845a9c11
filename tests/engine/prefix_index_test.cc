#include "engine/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace nightsweep {
namespace {

using Key = PrefixIndex::Key;

Key key_of(PrefixIndex::Node parent, const std::string& text) {
  Key key{.parent = parent, .n_tokens = static_cast<uint32_t>(text.size())};
  std::ranges::copy(text, key.tokens.begin());
  return key;
}

TEST(PrefixIndices, a_page_is_found_by_all_its_tokens_and_by_its_first_ones) {
  PrefixIndex index;
  const std::string whole(kKvPageTokens, 'a');
  const PrefixIndex::Node node = index.add(key_of(PrefixIndex::kRoot, whole), 5);
  EXPECT_EQ(index.find(key_of(PrefixIndex::kRoot, whole))->page, 5U);
  EXPECT_EQ(index.find_beginning(key_of(PrefixIndex::kRoot, "aab")).n_tokens, 0U) << "this step";
  index.begin_step();
  const PrefixIndex::Beginning found = index.find_beginning(key_of(PrefixIndex::kRoot, "aab"));
  EXPECT_EQ(found.page, 5U);
  EXPECT_EQ(found.n_tokens, 2U);
  EXPECT_EQ(index.find_beginning(key_of(node, "aab")).n_tokens, 0U) << "behind another prefix";
  EXPECT_EQ(index.find_beginning(key_of(PrefixIndex::kRoot, "b")).n_tokens, 0U);
}

TEST(PrefixIndices, a_page_is_known_for_the_most_it_holds) {
  PrefixIndex index;
  index.add(key_of(PrefixIndex::kRoot, "abc"), 1);
  index.begin_step();
  index.add(key_of(PrefixIndex::kRoot, "abcdef"), 1);
  const Key key = key_of(PrefixIndex::kRoot, "abcdx");
  EXPECT_EQ(index.find_beginning(key).n_tokens, 0U) << "written in this step";
  index.begin_step();
  EXPECT_EQ(index.find_beginning(key).n_tokens, 4U);
  // Another of the same tokens changes nothing; when the first one goes they are gone.
  index.add(key_of(PrefixIndex::kRoot, "abcdef"), 2);
  EXPECT_FALSE(index.has(2));
  EXPECT_TRUE(index.has(1));
  index.forget(1);
  index.begin_step();
  EXPECT_EQ(index.find_beginning(key).n_tokens, 0U);
}

TEST(PrefixIndices, what_a_step_works_on_is_known_for_that_step) {
  PrefixIndex index;
  index.note_begun(key_of(PrefixIndex::kRoot, "abcd"));
  index.note_begun(key_of(PrefixIndex::kRoot, "abxy"));
  EXPECT_EQ(index.n_begun(key_of(PrefixIndex::kRoot, "abcz")), 3U);
  EXPECT_EQ(index.n_begun(key_of(PrefixIndex::kRoot, "abxy")), 4U);
  EXPECT_EQ(index.n_begun(key_of(1, "abcz")), 0U);
  index.begin_step();
  EXPECT_EQ(index.n_begun(key_of(PrefixIndex::kRoot, "abcz")), 0U);
}

// Against a search through all.
TEST(PrefixIndices, the_most_in_common_is_found_among_many) {
  std::mt19937 random(3);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  const auto random_key = [&] {
    std::string text;
    for (uint32_t n = 1 + below(10); n > 0; --n)
      text += static_cast<char>('a' + below(2));
    return key_of(below(3), text);
  };
  struct Known {
    Key key;
    uint32_t step;
  };
  PrefixIndex index;
  std::vector<std::optional<Known>> pages(60);
  uint32_t n_found = 0;
  for (uint32_t step = 0; step < 300; ++step) {
    index.begin_step();
    for (uint32_t n = below(20); n > 0; --n) {
      const uint32_t page = below(static_cast<uint32_t>(pages.size()));
      index.forget(page);
      pages[page].reset();
      const Key key = random_key();
      index.add(key, page);
      if (index.has(page)) pages[page] = {key, step};
    }
    for (uint32_t i = 0; i < 20; ++i) {
      const Key key = random_key();
      uint32_t most = 0;
      const auto common = [&](const Known& known) {
        uint32_t n = 0;
        while (known.key.parent == key.parent && n < key.n_tokens && n < known.key.n_tokens &&
               known.key.tokens[n] == key.tokens[n]) {
          ++n;
        }
        return n;
      };
      for (const auto& known : pages) {
        if (known && known->step < step) most = std::max(most, common(*known));
      }
      const PrefixIndex::Beginning found = index.find_beginning(key);
      ASSERT_EQ(found.n_tokens, most);
      if (most == 0) continue;
      ASSERT_LT(pages[found.page]->step, step);
      ASSERT_EQ(common(*pages[found.page]), most);
      ++n_found;
    }
  }
  EXPECT_GT(n_found, 1000U);
}

}  // namespace
}  // namespace nightsweep
