#include "engine/gguf.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "support/cases.h"
#include "support/expect_error.h"
#include "support/gguf_writer.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace nightsweep {
namespace {

GgufHead parse(const std::string& bytes) {
  return parse_gguf_head(std::as_bytes(std::span(bytes)), bytes.size(), "model.gguf");
}

const GgufValue& value_of(const GgufHead& head, const std::string& name) {
  for (const auto& [key, value] : head.keys) {
    if (key == name) return value;
  }
  throw std::runtime_error("no key " + name);
}

void overwrite_byte(const std::string& path, uint64_t offset, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(value);
}

GgufWriter small_file() {
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_f32_tensor("a", {2, 3}, {1, 2, 3, 4, 5, 6});
  writer.set_f32_tensor("b", {1}, {7});
  return writer;
}

TEST(Gguf, reads_values_of_every_type) {
  GgufWriter writer;
  writer.set_u8("u8", 255).set_i8("i8", -128).set_u16("u16", 65535).set_i16("i16", -32768);
  writer.set_u32("u32", 4294967295U).set_i32("i32", std::numeric_limits<int32_t>::min());
  writer.set_u64("u64", 1ULL << 62).set_u64("large", std::numeric_limits<uint64_t>::max());
  writer.set_i64("i64", std::numeric_limits<int64_t>::min());
  writer.set_f32("f32", 0.1F).set_f64("f64", 0.1).set_bool("yes", true).set_bool("no", false);
  writer.set_string("text", std::string("a\0b", 3));
  GgufHead head = parse(writer.bytes());

  auto integer = [&](const char* key) { return std::get<int64_t>(value_of(head, key).value); };
  EXPECT_EQ(integer("u8"), 255);
  EXPECT_EQ(integer("i8"), -128);
  EXPECT_EQ(integer("u16"), 65535);
  EXPECT_EQ(integer("i16"), -32768);
  EXPECT_EQ(integer("u32"), 4294967295);
  EXPECT_EQ(integer("i32"), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(integer("u64"), 1LL << 62);
  EXPECT_EQ(integer("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(
      std::get<uint64_t>(value_of(head, "large").value), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(std::get<double>(value_of(head, "f32").value), static_cast<double>(0.1F));
  EXPECT_EQ(std::get<double>(value_of(head, "f64").value), 0.1);
  EXPECT_TRUE(std::get<bool>(value_of(head, "yes").value));
  EXPECT_FALSE(std::get<bool>(value_of(head, "no").value));
  EXPECT_EQ(std::get<std::string>(value_of(head, "text").value), std::string("a\0b", 3));
  EXPECT_EQ(value_of(head, "u16").type, GgufType::u16);
}

TEST(Gguf, reads_arrays) {
  GgufWriter writer;
  writer.set_bytes("bytes", {0, 255});
  writer.set_i32s("integers", {-1, 2});
  writer.set_f32s("floats", {0.5F});
  writer.set_strings("texts", {"", "x"});
  writer.set_strings("none", {});
  writer.set_u64s("fits", {1, 2});
  writer.set_u64s("large", {1, std::numeric_limits<uint64_t>::max()});
  GgufHead head = parse(writer.bytes());

  auto array = [&](const char* key) { return std::get<GgufArray>(value_of(head, key).value); };
  EXPECT_EQ(std::get<std::vector<int64_t>>(array("bytes").values), (std::vector<int64_t>{0, 255}));
  EXPECT_EQ(array("bytes").element_type, GgufType::u8);
  EXPECT_EQ(
      std::get<std::vector<int64_t>>(array("integers").values), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(std::get<std::vector<double>>(array("floats").values), std::vector<double>{0.5});
  EXPECT_EQ(
      std::get<std::vector<std::string>>(array("texts").values),
      (std::vector<std::string>{"", "x"}));
  EXPECT_EQ(array("none").size(), 0U);
  EXPECT_EQ(std::get<std::vector<int64_t>>(array("fits").values), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(
      std::get<std::vector<uint64_t>>(array("large").values),
      (std::vector<uint64_t>{1, std::numeric_limits<uint64_t>::max()}));
}

TEST(Gguf, places_tensors_behind_the_head) {
  for (uint32_t alignment : {8U, 32U, 64U, 65536U}) {
    for (uint32_t version : {2U, 3U}) {
      GgufWriter writer = small_file();
      writer.set_version(version).set_alignment(alignment);
      std::string bytes = writer.bytes();
      GgufHead head = parse(bytes);
      EXPECT_EQ(head.version, version);
      EXPECT_EQ(head.alignment, alignment);
      EXPECT_EQ(head.data_offset % alignment, 0U);
      ASSERT_EQ(head.tensors.size(), 2U);
      EXPECT_EQ(head.tensors[0].name, "a");
      EXPECT_EQ(head.tensors[0].dims, (std::vector<uint64_t>{2, 3}));
      EXPECT_EQ(head.tensors[0].n_elems(), 6U);
      EXPECT_EQ(head.tensors[0].size_bytes, 24U);
      EXPECT_EQ(head.tensors[0].offset, head.data_offset);
      float last = 0;
      std::memcpy(&last, bytes.data() + head.tensors[1].offset, sizeof last);
      EXPECT_EQ(last, 7.0F);
    }
  }
}

TEST(Gguf, refuses_a_bad_header) {
  std::string sound = small_file().bytes();
  auto with_bytes = [&](size_t offset, const std::string& bytes) {
    std::string changed = sound;
    changed.replace(offset, bytes.size(), bytes);
    return changed;
  };
  EXPECT_MODEL_ERROR(parse(""), "model.gguf: header: the file is empty");
  EXPECT_MODEL_ERROR(parse("GGU"), "past the end of the file (3 bytes)");
  EXPECT_MODEL_ERROR(parse(with_bytes(0, "GGML")), "begins with 'GGML', expected \"GGUF\"");
  EXPECT_MODEL_ERROR(parse(with_bytes(4, std::string("\1\0\0\0", 4))), "version 1 is too old");
  EXPECT_MODEL_ERROR(parse(with_bytes(4, std::string("\4\0\0\0", 4))), "version is 4, expected 2");
  EXPECT_MODEL_ERROR(parse(with_bytes(4, std::string("\0\0\0\0", 4))), "version is 0, expected 2");
  EXPECT_MODEL_ERROR(parse(with_bytes(4, std::string("\0\0\0\3", 4))), "big-endian");
  EXPECT_MODEL_ERROR(
      parse(with_bytes(8, std::string(8, '\xff'))),
      "the number of tensors is 18446744073709551615, but the");
  EXPECT_MODEL_ERROR(
      parse(with_bytes(16, std::string("\0\0\0\0\0\0\0\x10", 8))),
      "the number of keys is 1152921504606846976, but the");
}

TEST(Gguf, refuses_bad_keys) {
  auto with_key = [](std::string_view key, uint32_t type, std::string_view payload) {
    GgufWriter writer = small_file();
    writer.append_raw_key(key, type, payload);
    return writer.bytes();
  };
  constexpr auto kArray = static_cast<uint32_t>(GgufType::array);
  const std::string huge(8, '\x3f');
  EXPECT_MODEL_ERROR(parse(with_key("", 0, "x")), "key 2 of 2: the key is empty");
  EXPECT_MODEL_ERROR(
      parse(with_key("general.architecture", 0, "x")),
      "key 'general.architecture': stands in the file twice");
  EXPECT_MODEL_ERROR(parse(with_key("k", 13, "x")), "key 'k': the value is of type 13");
  EXPECT_MODEL_ERROR(parse(with_key("k", 7, "\2")), "key 'k': a boolean is 2, expected 0 or 1");
  EXPECT_MODEL_ERROR(parse(with_key("k", 8, huge)), "key 'k': string of 4557430888798830399 bytes");
  EXPECT_MODEL_ERROR(
      parse(with_key("k", kArray, std::string("\x9\0\0\0", 4) + huge)),
      "key 'k': arrays inside of arrays");
  EXPECT_MODEL_ERROR(
      parse(with_key("k", kArray, std::string("\x63\0\0\0", 4) + huge)),
      "key 'k': the array element is of type 99");
  for (char type : {0, 4, 7, 8, 10, 12}) {
    EXPECT_MODEL_ERROR(
        parse(with_key("k", kArray, std::string{type, 0, 0, 0} + huge)),
        "key 'k': the array has 4557430888798830399 elements");
  }
  EXPECT_MODEL_ERROR(
      parse(with_key(std::string(70000, 'k'), 0, "x")), "the key is 70000 bytes long");
}

TEST(Gguf, shows_hostile_text_harmless) {
  GgufWriter writer = small_file();
  writer.append_raw_key("\x1b[31m\n", 99, "");
  EXPECT_MODEL_ERROR(parse(writer.bytes()), "key '\\x1b[31m\\x0a': the value is of type 99");
  EXPECT_EQ(quoted_for_message(std::string(100, 'x')), "'" + std::string(80, 'x') + "...'");
}

TEST(Gguf, refuses_a_bad_alignment) {
  for (uint32_t alignment : {0U, 1U, 4U, 12U, 33U, 131072U, 4294967295U}) {
    GgufWriter writer = small_file();
    writer.set_u32("general.alignment", alignment);
    EXPECT_MODEL_ERROR(
        parse(writer.bytes()), format("'general.alignment': the alignment is {}", alignment));
  }
  GgufWriter negative = small_file();
  negative.set_i32("general.alignment", -32);
  EXPECT_MODEL_ERROR(parse(negative.bytes()), "the alignment is -32");
  GgufWriter text = small_file();
  text.set_string("general.alignment", "32");
  EXPECT_MODEL_ERROR(parse(text.bytes()), "expected an integer, found string");
}

TEST(Gguf, refuses_bad_shapes) {
  auto with_tensor = [](const std::vector<uint64_t>& dims, uint32_t type) {
    GgufWriter writer = small_file();
    writer.set_tensor("t", dims, type, std::string(4096, '\0'));
    return writer.bytes();
  };
  EXPECT_MODEL_ERROR(parse(with_tensor({}, 0)), "tensor 't': the number of dimensions is 0");
  EXPECT_MODEL_ERROR(parse(with_tensor({1, 1, 1, 1, 1}, 0)), "the number of dimensions is 5");
  EXPECT_MODEL_ERROR(parse(with_tensor({0}, 0)), "dimension 0 is 0");
  EXPECT_MODEL_ERROR(parse(with_tensor({4, 0}, 0)), "dimension 1 is 0");
  EXPECT_MODEL_ERROR(parse(with_tensor({1ULL << 32, 1ULL << 32}, 0)), "beyond 63 bits");
  EXPECT_MODEL_ERROR(parse(with_tensor({(1ULL << 42) + 1, 1ULL << 22}, 0)), "beyond 63 bits");
  EXPECT_MODEL_ERROR(parse(with_tensor({1ULL << 62}, 0)), "goes beyond 64 bits");
  EXPECT_MODEL_ERROR(parse(with_tensor({1ULL << 61}, 0)), "past the end of the file");
  EXPECT_MODEL_ERROR(parse(with_tensor({64}, 12)), "expected a multiple of 256 for Q4_K");
  EXPECT_MODEL_ERROR(parse(with_tensor({16, 2}, 2)), "expected a multiple of 32 for Q4_0");
  EXPECT_MODEL_ERROR(parse(with_tensor({64}, 4)), "tensor type 4 is unknown or was removed");
  EXPECT_MODEL_ERROR(parse(with_tensor({64}, 4000)), "tensor type 4000 is unknown");
  EXPECT_EQ(parse(with_tensor({32, 2, 3, 2}, 8)).tensors[2].size_bytes, 34U * 12);
}

TEST(Gguf, refuses_bad_places_of_tensors) {
  auto with_offset = [](uint64_t offset) { return small_file().force_offset("b", offset).bytes(); };
  EXPECT_NO_THROW(parse(with_offset(32)));
  EXPECT_MODEL_ERROR(parse(with_offset(33)), "offset 33 is no multiple of the alignment 32");
  EXPECT_MODEL_ERROR(parse(with_offset(0)), "tensor 'b': begins at byte");
  EXPECT_MODEL_ERROR(parse(with_offset(64)), "tensor 'b': its 4 bytes at offset 64 of the data");
  EXPECT_MODEL_ERROR(parse(with_offset(1ULL << 40)), "past the end of the file");
  EXPECT_MODEL_ERROR(parse(with_offset(~31ULL)), "past the end of the file");

  GgufWriter twins = small_file();
  twins.set_f32_tensor("other", {1}, {0});
  std::string bytes = twins.bytes();
  bytes.replace(bytes.find("other"), 5, "a\0\0\0\0", 5);
  EXPECT_NO_THROW(parse(bytes));
  GgufWriter same = small_file();
  same.set_f32_tensor("c", {1}, {0});
  bytes = same.bytes();
  bytes[bytes.rfind("\1\0\0\0\0\0\0\0c", std::string::npos, 9) + 8] = 'b';
  EXPECT_MODEL_ERROR(parse(bytes), "tensor 'b': stands in the file twice");
}

// Gaps and any order are allowed, overlap is not.
TEST(Gguf, accepts_tensors_in_any_order) {
  GgufWriter writer;
  writer.set_f32_tensor("first", {8}, std::vector<float>(8, 1));
  writer.set_f32_tensor("second", {8}, std::vector<float>(8, 2));
  writer.force_offset("first", 32).force_offset("second", 0);
  GgufHead head = parse(writer.bytes());
  EXPECT_EQ(head.tensors[0].offset, head.data_offset + 32);
  EXPECT_EQ(head.tensors[1].offset, head.data_offset);
}

TEST(Gguf, asks_for_more_of_a_head_that_is_cut) {
  std::string bytes = small_file().bytes();
  size_t head_end = 0;
  for (size_t n = 0; n <= bytes.size(); ++n) {
    std::optional<GgufHead> head = parse_gguf_prefix(
        std::as_bytes(std::span(bytes)).subspan(0, n), bytes.size(), "model.gguf");
    if (head.has_value() && head_end == 0) head_end = n;
    EXPECT_EQ(head.has_value(), head_end != 0) << n;
  }
  EXPECT_GT(head_end, 100U);
  EXPECT_LT(head_end, bytes.size());
  EXPECT_MODEL_ERROR(
      parse_gguf_head(std::as_bytes(std::span(bytes)).subspan(0, 50), bytes.size(), "model.gguf"),
      "the head goes on");
}

TEST(GgufModel, gives_typed_access) {
  GgufWriter writer = small_file();
  writer.set_u32("four", 4).set_i8("minus", -1).set_f32("half", 0.5F).set_bool("flag", true);
  writer.set_u64("large", ~0ULL).set_strings("texts", {"x"});
  GgufModel model = GgufModel::from_head("m.gguf", parse(writer.bytes()), writer.bytes().size());

  EXPECT_EQ(model.find_unsigned("four"), 4U);
  EXPECT_EQ(model.find_unsigned("large"), ~0ULL);
  EXPECT_EQ(model.find_unsigned("absent"), std::nullopt);
  EXPECT_EQ(model.find_number("four"), 4.0);
  EXPECT_EQ(model.find_number("half"), 0.5);
  EXPECT_EQ(model.find_number("minus"), -1.0);
  EXPECT_EQ(model.find_bool("flag"), true);
  EXPECT_EQ(model.find_bool("absent"), std::nullopt);
  EXPECT_EQ(*model.find_string("general.architecture"), "llama");
  EXPECT_EQ(model.find_string("absent"), nullptr);
  EXPECT_EQ(model.find_array("texts")->size(), 1U);
  EXPECT_EQ(model.architecture(), "llama");
  EXPECT_EQ(model.find_tensor("b")->dims.size(), 1U);
  EXPECT_EQ(model.find_tensor("c"), nullptr);

  EXPECT_MODEL_ERROR(
      model.find_unsigned("minus"), "m.gguf: key 'minus': expected an integer of at least 0");
  EXPECT_MODEL_ERROR(model.find_unsigned("half"), "key 'half': expected an integer, found f32");
  EXPECT_MODEL_ERROR(model.find_unsigned("flag"), "expected an integer, found bool");
  EXPECT_MODEL_ERROR(model.find_number("texts"), "expected a number, found array");
  EXPECT_MODEL_ERROR(model.find_bool("four"), "expected a boolean, found u32");
  EXPECT_MODEL_ERROR(model.find_string("four"), "expected a string, found u32");
  EXPECT_MODEL_ERROR(model.find_array("four"), "expected an array, found u32");
  EXPECT_MODEL_ERROR(model.require_unsigned("absent"), "key 'absent' is missing");
  EXPECT_MODEL_ERROR(model.require_string("absent"), "key 'absent' is missing");
}

TEST(GgufModel, opens_a_file) {
  TemporaryFolder folder;
  small_file().write(folder.path("m.gguf"));
  GgufModel model = GgufModel::open(folder.path("m.gguf"));
  EXPECT_EQ(model.paths(), std::vector<std::string>{folder.path("m.gguf")});
  EXPECT_EQ(model.file_bytes()[0], std::filesystem::file_size(folder.path("m.gguf")));
  float values[2] = {};
  model.read_tensor(*model.find_tensor("a"), 8, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values[0], 3.0F);
  EXPECT_EQ(values[1], 4.0F);
}

TEST(GgufModel, opens_a_file_whose_head_is_larger_than_one_read) {
  TemporaryFolder folder;
  GgufWriter writer = small_file();
  writer.set_strings("texts", std::vector<std::string>(300'000, "a token"));
  writer.write(folder.path("m.gguf"));
  GgufModel model = GgufModel::open(folder.path("m.gguf"));
  EXPECT_EQ(model.find_array("texts")->size(), 300'000U);
  EXPECT_EQ(model.tensors().size(), 2U);
}

TEST(GgufModel, reads_no_more_than_head_and_samples) {
  TemporaryFolder folder;
  constexpr uint64_t kRows = 10 << 20;
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_tensor("t", {1024, kRows}, 0, "");
  writer.write(folder.path("m.gguf"));
  // 40 GiB of nothing.
  std::filesystem::resize_file(
      folder.path("m.gguf"),
      std::filesystem::file_size(folder.path("m.gguf")) + kRows * 1024 * sizeof(float));
  GgufModel model = GgufModel::open(folder.path("m.gguf"));
  EXPECT_EQ(model.tensors()[0].size_bytes, 40ULL << 30);
  std::filesystem::resize_file(
      folder.path("m.gguf"), std::filesystem::file_size(folder.path("m.gguf")) - 64);
  EXPECT_MODEL_ERROR(GgufModel::open(folder.path("m.gguf")), "tensor 't': its 42949672960 bytes");
}

TEST(GgufModel, refuses_what_is_no_file) {
  TemporaryFolder folder;
  EXPECT_MODEL_ERROR(
      GgufModel::open(folder.path("absent.gguf")), "absent.gguf: No such file or directory");
  EXPECT_MODEL_ERROR(GgufModel::open(folder.path("")), "found a folder");
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_MODEL_ERROR(GgufModel::open(folder.path("pipe")), "no regular file");
}

TEST(GgufModel, fingerprint_follows_the_content) {
  TemporaryFolder folder;
  auto fingerprint = [&](const std::string& name) {
    return GgufModel::open(folder.path(name)).fingerprint();
  };
  write_tiny_llama(folder.path("a.gguf"), {});
  std::filesystem::copy_file(folder.path("a.gguf"), folder.path("b.gguf"));
  std::string original = fingerprint("a.gguf");
  EXPECT_EQ(original.size(), 64U);
  EXPECT_EQ(fingerprint("b.gguf"), original);

  uint64_t size_bytes = std::filesystem::file_size(folder.path("b.gguf"));
  uint64_t data_offset = GgufModel::open(folder.path("b.gguf")).tensors().front().offset;
  for (uint64_t offset : {uint64_t{40}, data_offset + 5, size_bytes - 1}) {
    std::filesystem::copy_file(
        folder.path("a.gguf"), folder.path("b.gguf"),
        std::filesystem::copy_options::overwrite_existing);
    overwrite_byte(folder.path("b.gguf"), offset, '\x55');
    EXPECT_NE(fingerprint("b.gguf"), original) << offset;
  }
}

TEST(GgufModel, opens_a_split_set_by_any_of_its_files) {
  TemporaryFolder folder;
  GgufWriter writer = make_tiny_llama({});
  std::vector<std::string> paths = writer.write_split(folder.path("m"), 3);
  writer.write(folder.path("whole.gguf"));
  GgufModel whole = GgufModel::open(folder.path("whole.gguf"));
  std::string fingerprint;
  for (const std::string& path : paths) {
    GgufModel model = GgufModel::open(path);
    EXPECT_EQ(model.paths(), paths);
    EXPECT_EQ(model.tensors().size(), whole.tensors().size());
    EXPECT_EQ(model.architecture(), "llama");
    if (!fingerprint.empty()) {
      EXPECT_EQ(model.fingerprint(), fingerprint);
    }
    fingerprint = model.fingerprint();
  }
  GgufModel model = GgufModel::open(paths[1]);
  for (const GgufTensor& tensor : whole.tensors()) {
    const GgufTensor* part = model.find_tensor(tensor.name);
    ASSERT_NE(part, nullptr) << tensor.name;
    std::vector<std::byte> expected(tensor.size_bytes);
    std::vector<std::byte> found(part->size_bytes);
    whole.read_tensor(tensor, 0, expected);
    model.read_tensor(*part, 0, found);
    EXPECT_EQ(found, expected) << tensor.name;
  }
}

TEST(GgufModel, names_the_missing_file_of_a_set) {
  TemporaryFolder folder;
  std::vector<std::string> paths = make_tiny_llama({}).write_split(folder.path("m"), 3);
  std::filesystem::remove(paths[1]);
  EXPECT_MODEL_ERROR(
      GgufModel::open(paths[2]), "m-00002-of-00003.gguf: file 2 of 3 of this model is missing");
}

TEST(GgufModel, refuses_a_set_that_does_not_fit_together) {
  TemporaryFolder folder;
  GgufWriter writer = small_file();
  std::vector<std::string> paths = writer.write_split(folder.path("m"), 2);

  std::filesystem::copy_file(paths[0], folder.path("renamed.gguf"));
  EXPECT_MODEL_ERROR(
      GgufModel::open(folder.path("renamed.gguf")), "its name must end in -00001-of-00002.gguf");

  std::filesystem::copy_file(paths[0], paths[1], std::filesystem::copy_options::overwrite_existing);
  EXPECT_MODEL_ERROR(GgufModel::open(paths[0]), "are 0 and 2, expected 1 and 2");

  GgufWriter second;
  second.set_u16("split.no", 1).set_u16("split.count", 2).set_i32("split.tensors.count", 2);
  second.set_f32_tensor("a", {1}, {7});
  second.write(paths[1]);
  EXPECT_MODEL_ERROR(GgufModel::open(paths[0]), "tensor 'a' stands in");
  second.remove_tensor("a").write(paths[1]);
  EXPECT_MODEL_ERROR(
      GgufModel::open(paths[0]), "'split.tensors.count' is 2, but the 2 files hold 1");
  second.set_f32_tensor("b", {1}, {7}).write(paths[1]);
  EXPECT_NO_THROW(GgufModel::open(paths[0]));
  second.set_string("general.architecture", "llama").write(paths[1]);
  EXPECT_NO_THROW(GgufModel::open(paths[0]));
  second.set_string("general.architecture", "other").write(paths[1]);
  EXPECT_MODEL_ERROR(GgufModel::open(paths[0]), "key 'general.architecture' is not as in");
  second.remove_key("general.architecture").remove_key("split.no").write(paths[1]);
  EXPECT_MODEL_ERROR(GgufModel::open(paths[0]), "key 'split.no' is missing");
  second.set_string("split.no", "1").write(paths[1]);
  EXPECT_MODEL_ERROR(GgufModel::open(paths[0]), "expected an integer of at least 0, found string");
}

// What is wrong with vocabulary, parameters or template is found later; as files they are sound.
bool is_wrong_as_a_file(const std::string& name) {
  for (const char* prefix : {"s-", "v-", "c-"}) {
    if (name.starts_with(prefix)) return false;
  }
  return name != "t-name-long.gguf";
}

TEST(GgufModel, shared_malformed_files_end_as_their_manifest_says) {
  NEEDS_CASES("gguf-malformed");
  std::string folder = cases_folder() + "/gguf-malformed/";
  Json manifest = Json::parse(read_whole_file(folder + "manifest.json", ErrorKind::input));
  EXPECT_EQ(manifest.as_array().size(), 42U);
  for (const Json& entry : manifest.as_array()) {
    std::string name = entry.find("file")->as_string();
    std::string text = text_of_error(ErrorKind::model, [&] { GgufModel::open(folder + name); });
    EXPECT_EQ(!text.empty(), is_wrong_as_a_file(name)) << name << ": " << text;
  }
}

TEST(GgufModel, shared_variants_hold_the_same_weights) {
  NEEDS_CASES("gguf-variants");
  GgufModel plain = GgufModel::open(cases_folder() + "/tiny-models/llama-f32.gguf");
  for (const char* name : {"v2.gguf", "align64.gguf", "split-00003-of-00003.gguf"}) {
    GgufModel model = GgufModel::open(cases_folder() + "/gguf-variants/" + name);
    EXPECT_EQ(model.tensors().size(), plain.tensors().size()) << name;
    for (const GgufTensor& tensor : plain.tensors()) {
      const GgufTensor* other = model.find_tensor(tensor.name);
      ASSERT_NE(other, nullptr) << name << " " << tensor.name;
      std::vector<std::byte> expected(tensor.size_bytes);
      std::vector<std::byte> found(other->size_bytes);
      plain.read_tensor(tensor, 0, expected);
      model.read_tensor(*other, 0, found);
      EXPECT_EQ(found, expected) << name << " " << tensor.name;
    }
  }
}

}  // namespace
}  // namespace nightsweep
