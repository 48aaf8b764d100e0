#include "towline/loader/checkpoint_verify.h"

#include <fmt/format.h>

#include <chrono>
#include <unordered_map>
#include <unordered_set>

#include "towline/loader/internal/descriptors.h"
#include "towline/loader/internal/file_sink.h"
#include "towline/loader/internal/open_checkpoint.h"

namespace towline::loader {
namespace {

using internal::Shard;

std::string text_of(const std::optional<tensor::Shape>& shape) { return shape ? tensor::to_string(*shape) : "none"; }
std::string text_of(const std::optional<tensor::Digest>& digest) { return digest ? to_string(*digest) : "none"; }

/// Why the two are not one tensor; empty: they are, as far as both say.
std::string difference(const tensor::TensorDesc& file, const tensor::TensorDesc& other) {
  if (file.dtype != other.dtype) return fmt::format("dtype {} in the file, {} here", file.dtype, other.dtype);
  if (file.bytes != other.bytes) return fmt::format("{} bytes in the file, {} here", file.bytes, other.bytes);
  if (other.shape && file.shape != other.shape) {
    return fmt::format("shape {} in the file, {} here", text_of(file.shape), text_of(other.shape));
  }
  if (other.digest && file.digest != other.digest) {
    return fmt::format("digest {} in the file, {} here", text_of(file.digest), text_of(other.digest));
  }
  return {};
}

void add_difference(VerifyReport& report, std::string_view name, std::string_view what) {
  ++report.differences;
  if (!report.first_difference) report.first_difference = fmt::format("tensor {}: {}", quoted_name(name), what);
}

/// Reads one file through the bounce buffer into the digests of its tensors.
Result<void> digest_shard(const LoaderContext& context, device::Device& device, const Shard& shard,
                          const LoadOptions& options, tensor::Manifest& manifest) {
  const auto stream = TOWLINE_TRY(device.open_stream(std::nullopt));
  internal::DigestQueue digests(shard.header, internal::digests_natively(device) ? stream.get() : nullptr,
                                context.clock, options.deadline);
  const internal::LandingTable table{shard.header.data_offset(), &digests, {}};
  internal::StagingSink sink(context.clock, options.deadline, *stream,
                             {std::nullopt, shard.image_begin(), true, table});
  TOWLINE_TRY(sink.open(*shard.storage, options.staging_bytes));
  const size_t in_flight = std::clamp<size_t>(sink.slots() / 2, 1, internal::kChunksInFlight);
  TOWLINE_TRY(internal::read_chunks(shard.source(context.clock, options.deadline),
                                    {shard.image_begin(), shard.stamp.bytes, in_flight}, sink));
  const auto found = TOWLINE_TRY(digests.finish());
  TOWLINE_TRY(internal::check_unchanged(shard));
  for (size_t i = 0; i < shard.header.size(); ++i) {
    tensor::TensorDesc desc = internal::describe(shard.header[i]);
    desc.digest = found[i];
    manifest.push_back(std::move(desc));
  }
  return {};
}

}  // namespace

Result<tensor::Manifest> digest_checkpoint(const LoaderContext& context, device::Device& device,
                                           const std::string& path, const LoadOptions& options) {
  const auto open = TOWLINE_TRY(internal::open_checkpoint(context, path, options));
  tensor::Manifest manifest;
  manifest.reserve(open.tensors);
  for (const Shard& shard : open.shards) TOWLINE_TRY(digest_shard(context, device, shard, options, manifest));
  return manifest;
}

VerifyReport compare_manifests(const tensor::Manifest& expected, const tensor::Manifest& actual) {
  VerifyReport report;
  report.tensors = expected.size();
  std::unordered_map<std::string_view, const tensor::TensorDesc*> here;
  for (const tensor::TensorDesc& desc : actual) here.emplace(desc.name, &desc);
  std::unordered_set<std::string_view> in_file;
  for (const tensor::TensorDesc& file : expected) {
    report.bytes += file.bytes;
    in_file.insert(file.name);
    const auto found = here.find(file.name);
    const std::string what = found == here.end() ? "in the file, not here" : difference(file, *found->second);
    if (!what.empty()) {
      add_difference(report, file.name, what);
    } else {
      ++(found->second->digest ? report.matching : report.unverified);
    }
  }
  for (const tensor::TensorDesc& desc : actual) {
    if (here.at(desc.name) != &desc) add_difference(report, desc.name, "here twice");
    if (in_file.find(desc.name) == in_file.end()) add_difference(report, desc.name, "here, not in the file");
  }
  return report;
}

Result<VerifyReport> verify_against_file(const LoaderContext& context, device::Device& device, const std::string& path,
                                         const tensor::Manifest& actual, const LoadOptions& options) {
  const TimePoint start = context.clock.now();
  const tensor::Manifest expected = TOWLINE_TRY(digest_checkpoint(context, device, path, options));
  VerifyReport report = compare_manifests(expected, actual);
  report.seconds = std::chrono::duration<double>(context.clock.now() - start).count();
  return report;
}

}  // namespace towline::loader
