#include <gtest/gtest.h>

#include "golden/loader/golden_text.h"
#include "towline/device/host.h"
#include "towline/loader/safetensors_loader.h"
#include "towline/storage/faulty.h"
#include "towline/storage/memory.h"
#include "unit/loader/checkpoint_builder.h"

namespace towline::loader {
namespace {

/// Every way in which a checkpoint is bad, as the user reads it.
class LoaderErrors : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& content) { store_file(*storage_, *clock_, path, content); }
  void put_shards(const std::string& folder, const std::string& weight_map) {
    put(folder + "/1.safetensors", safetensors_file({make_u8("a", 4), make_u8("b", 4)}));
    put(folder + "/2.safetensors", safetensors_file({make_u8("c", 4)}));
    put(folder + "/model.safetensors.index.json", "{\"weight_map\":" + weight_map + "}");
  }
  void put_index(const std::string& folder, const std::string& index) {
    put(folder + "/model.safetensors.index.json", index);
  }
  void add(const std::string& title, const std::string& path, const LoadOptions& options = {}) {
    const LoaderContext context{.clock = *clock_, .log = null_log(), .buffered = *storage_};
    const auto loaded = load_checkpoint(context, *device_, path, options);
    text_ += fmt::format("{}\n    {}\n", title, loaded.has_value() ? "loaded" : to_string(loaded.error()));
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  storage::StorageFaults faults_;
  std::unique_ptr<storage::Storage> storage_ = storage::open_faulty_storage(
      {*clock_, null_log()}, storage::open_memory_storage({*clock_, null_log()}, nullptr), faults_);
  std::unique_ptr<device::Device> device_ = device::open_host_device({*clock_, null_log()}, {.capacity = MiB(4)});
  std::string text_;
};

TEST_F(LoaderErrors, NameTheFileTheCauseAndTheNextStep) {
  add("no path", "");
  add("no such file", "absent.safetensors");
  add("no such folder", "absent");
  put("notes/readme.txt", "x");
  add("a folder without a checkpoint", "notes");
  put("empty.safetensors", "");
  add("an empty file", "empty.safetensors");
  put("cut.safetensors", safetensors_file({make_u8("a", 100)}).substr(0, 120));
  add("a truncated file", "cut.safetensors");
  put("big.safetensors", safetensors_file({make_u8("a", 5 << 20)}));
  add("no memory", "big.safetensors");
  put("good.safetensors", safetensors_file({make_u8("a", 100)}));
  add("a deadline in the past", "good.safetensors", {.deadline = TimePoint()});
  add("too small a bounce buffer", "good.safetensors", {.always_stage = true, .staging_bytes = MiB(1)});
  faults_.add({.nth = faults_.calls(storage::FaultCall::kRead) + 2});
  add("a bad sector", "good.safetensors");
  expect_golden("loader_errors.txt", text_);
}

TEST_F(LoaderErrors, NameIndexTensorAndShard) {
  put_shards("missing", R"({"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors","d":"2.safetensors"})");
  add("a tensor that no shard has", "missing");
  put_shards("wrong", R"({"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"})");
  add("a tensor in another shard", "wrong");
  put_shards("unknown", R"({"a":"1.safetensors","c":"2.safetensors"})");
  add("a tensor that the index does not know", "unknown");
  put_shards("gone", R"({"a":"1.safetensors","b":"1.safetensors","c":"3.safetensors"})");
  add("a shard that is not there", "gone");
  put("twice/x.safetensors", safetensors_file({make_u8("a", 4)}));
  put("twice/y.safetensors", safetensors_file({make_u8("a", 4)}));
  add("a tensor in two files", "twice");
  put_index("up", R"({"weight_map":{"a":"../1.safetensors"}})");
  add("a shard above the folder", "up");
  put_index("inner", R"({"weight_map":{"a":"x/../../1.safetensors"}})");
  add("a shard above the folder, hidden", "inner");
  put_index("root", R"({"weight_map":{"a":"/etc/passwd"}})");
  add("an absolute shard", "root");
  put_index("void", R"({"weight_map":{"a":""}})");
  add("an empty shard path", "void");
  put_index("nul", R"({"weight_map":{"a":"x\u0000.safetensors"}})");
  add("NUL in a shard path", "nul");
  put_index("none", R"({"metadata":{}})");
  add("no weight_map", "none");
  put_index("both", R"({"weight_map":{"a":"1"},"weight_map":{"a":"1"}})");
  add("two weight_maps", "both");
  put_index("same", R"({"weight_map":{"a":"1","\u0061":"2"}})");
  add("a name twice", "same");
  put_index("blank", R"({"weight_map":{}})");
  add("an empty weight_map", "blank");
  put_index("list", R"([])");
  add("an index that is a list", "list");
  put_index("torn", R"({"weight_map":{"a":"1.safe)");
  add("an index cut off", "torn");
  put_index("more", R"({"weight_map":{"a":"1"}}{)");
  add("something after the index", "more");
  put_index("type", R"({"weight_map":{"a":1}})");
  add("a shard that is a number", "type");
  expect_golden("checkpoint_index.txt", text_);
}

}  // namespace
}  // namespace towline::loader
