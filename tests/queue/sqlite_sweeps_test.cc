// What the sweeps did, kept for status.

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

class SweepsTest : public QueueTest {
 protected:
  static SweepRecord record(int64_t end_ms) {
    SweepRecord record;
    record.model = "/models/model.gguf";
    record.begin_ms = end_ms - 10'000;
    record.end_ms = end_ms;
    record.n_sweeps = 5;
    record.prefill_tokens = 100;
    record.decode_tokens = 30;
    record.new_tokens = 40;
    record.shared_tokens = 64;
    record.evictions = 1;
    record.resident_bytes = 1000;
    record.link_bytes = uint64_t{5} << 40;
    record.disk_bytes = 7;
    record.sweep_s = 9.5;
    record.queue_s = 0.25;
    record.wait_s = 1.5;
    record.link_wait_s = 2.5;
    record.ring_wait_s = 3.5;
    record.disk_busy_s = 4.5;
    record.link_share = 0.75;
    record.binding = "link";
    record.energy_j = 80;
    return record;
  }
};

TEST_F(SweepsTest, come_back_as_they_were_written) {
  auto queue = open_worker();
  queue->add_sweeps(record(20'000));
  SweepRecord plain = record(30'000);
  plain.energy_j = -1;
  plain.link_share = -1;
  plain.binding = "device";
  queue->add_sweeps(plain);
  const std::vector<SweepRecord> all = open()->sweeps_since(20'000);
  ASSERT_EQ(all.size(), 2U);
  const SweepRecord& first = all[0];
  EXPECT_EQ(first.model, "/models/model.gguf");
  EXPECT_EQ(first.begin_ms, 10'000);
  EXPECT_EQ(first.n_sweeps, 5U);
  EXPECT_EQ(first.prefill_tokens, 100U);
  EXPECT_EQ(first.decode_tokens, 30U);
  EXPECT_EQ(first.new_tokens, 40U);
  EXPECT_EQ(first.shared_tokens, 64U);
  EXPECT_EQ(first.evictions, 1U);
  EXPECT_EQ(first.resident_bytes, 1000U);
  EXPECT_EQ(first.link_bytes, uint64_t{5} << 40);
  EXPECT_EQ(first.disk_bytes, 7U);
  EXPECT_DOUBLE_EQ(
      first.sweep_s + 10 * first.queue_s + 100 * first.wait_s + 1000 * first.link_wait_s +
          1e4 * first.ring_wait_s + 1e5 * first.disk_busy_s,
      9.5 + 2.5 + 150 + 2500 + 35'000 + 450'000);
  EXPECT_DOUBLE_EQ(first.link_share, 0.75);
  EXPECT_LT(first.disk_share, 0);
  EXPECT_EQ(first.binding, "link");
  EXPECT_DOUBLE_EQ(first.energy_j, 80);
  EXPECT_LT(all[1].energy_j, 0);
  EXPECT_LT(all[1].link_share, 0);
  EXPECT_EQ(open()->sweeps_since(20'001).size(), 1U);
}

TEST_F(SweepsTest, are_a_view_for_people) {
  open_worker()->add_sweeps(record(20'000));
  EXPECT_EQ(
      Sql(path_).one("SELECT rows || ' ' || joules_per_token || ' ' || binding || ' ' || ended_at"
                     " FROM sweeps"),
      "130 2.0 link 1970-01-01T00:00:20.000Z");
}

TEST_F(SweepsTest, old_ones_are_pruned_by_an_index) {
  auto queue = open_worker();
  for (int64_t end_ms = 1000; end_ms <= 5000; end_ms += 1000)
    queue->add_sweeps(record(end_ms));
  EXPECT_EQ(queue->prune_sweeps(3000), 2U);
  EXPECT_EQ(queue->sweeps_since(0).front().end_ms, 3000);
  EXPECT_EQ(Sql(path_).plan("DELETE FROM sweep WHERE end_ms < 1").find("SCAN"), std::string::npos);
}

}  // namespace
}  // namespace nightsweep
