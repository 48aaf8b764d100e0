#include "towline/control/source_id.h"

#include <gtest/gtest.h>

#include "towline/base/hash.h"

namespace towline::control {
namespace {

SourceIdentity example_a() {
  SourceIdentity identity;
  identity.mx_version = "0.5.0";
  identity.model_name = "deepseek-ai/DeepSeek-V3";
  identity.backend_framework = 1;
  identity.tensor_parallel_size = 8;
  identity.dtype = "bfloat16";
  return identity;
}

SourceIdentity example_b() {
  SourceIdentity identity;
  identity.mx_version = "0.7.0";
  identity.mx_source_type = 3;
  identity.model_name = "Qwen/Qwen2.5-7B-Instruct";
  identity.backend_framework = 2;
  identity.tensor_parallel_size = 2;
  identity.expert_parallel_size = 1;
  identity.dtype = "BFloat16";
  identity.quantization = "FP8";
  identity.revision = "Rev-A1";
  identity.extra_parameters = {{"Z_Key", "Val"}, {"a_key", "MiXed"}};
  identity.backend_framework_version = "vLLM-0.23.0";
  identity.torch_version = "2.8.0+cu128";
  identity.cuda_version = "12.8";
  identity.gpu_arch = "SM90";
  identity.compile_config_digest = "prefill-mnbt8192";
  return identity;
}

// The two worked examples of transfer.md 7.2 and their variants.
TEST(SourceId, EqualsTheFirstWorkedExample) {
  EXPECT_EQ(canonical_json(example_a()),
            R"({"backend_framework":1,"dtype":"bfloat16","expert_parallel_size":0,"extra_parameters":{},)"
            R"("model_name":"deepseek-ai/deepseek-v3","mx_source_type":0,"mx_version":"0.5.0",)"
            R"("pipeline_parallel_size":1,"quantization":"","revision":"","tensor_parallel_size":8})");
  EXPECT_EQ(to_hex(sha256(as_bytes(canonical_json(example_a())))),
            "5a5f5555700650641d6f005a5a74f5500d435ba20792e2923c45e607dcba5260");
  EXPECT_EQ(source_id(example_a()), "5a5f555570065064");
}

TEST(SourceId, EqualsTheSecondWorkedExample) {
  EXPECT_EQ(canonical_json(example_b()).size(), 446u);
  EXPECT_EQ(to_hex(sha256(as_bytes(canonical_json(example_b())))),
            "8cd21c0662756427859238a173b4913a51071236f74f5cb333a41e0083b02e82");
  EXPECT_EQ(source_id(example_b()), "8cd21c0662756427");
}

TEST(SourceId, DependsOnTheRevision) {
  auto identity = example_a();
  identity.revision = "abc123def4567890";
  EXPECT_EQ(source_id(identity), "d0c184b2a9a34c82");
}

TEST(SourceId, TakesTheFirstOfTwoParametersThatDifferInCaseOnly) {
  auto identity = example_a();
  identity.extra_parameters = {{"Foo", "a"}, {"foo", "b"}};
  EXPECT_EQ(source_id(identity), "bf71fb9340cd940a");
}

TEST(SourceId, HashesRawUtf8InFullLowerCase) {
  auto identity = example_a();
  identity.model_name = "modèle/İ";
  EXPECT_EQ(source_id(identity), "dcbe59704cfd48ad");
}

TEST(SourceId, LeavesOutEmptyVersionsButNotTheEmptyRevision) {
  EXPECT_EQ(canonical_json(example_a()).find("torch_version"), std::string::npos);
  EXPECT_NE(canonical_json(example_a()).find("\"revision\":\"\""), std::string::npos);
  EXPECT_EQ(canonical_json(example_b()).find("triton_version"), std::string::npos);
}

TEST(SourceId, EscapesWhatJsonMustAndNothingElse) {
  auto identity = example_a();
  identity.dtype = "a\"b\\c\n\t\x01\x1f/\x7f";
  EXPECT_NE(canonical_json(identity).find("\"a\\\"b\\\\c\\n\\t\\u0001\\u001f/\x7f\""), std::string::npos);
}

TEST(SourceId, ChangesWithEachHashedFieldAndNotWithCase) {
  const auto id = source_id(example_b());
  auto identity = example_b();
  identity.model_name = "QWEN/qwen2.5-7b-INSTRUCT";
  EXPECT_EQ(source_id(identity), id);
  identity = example_b();
  identity.pipeline_parallel_size = 2;
  EXPECT_NE(source_id(identity), id);
  identity = example_b();
  identity.gpu_arch.clear();
  EXPECT_NE(source_id(identity), id);
}

}  // namespace
}  // namespace towline::control
