#pragma once

#include <optional>
#include <string>
#include <utility>

#include "towline/loader/safetensors_loader.h"
#include "towline/transfer/load_strategy.h"
#include "towline/transfer/session.h"

namespace towline::loader {

/// The last strategy of a chain: reads a checkpoint from disk into new memory and registers it with the session's
/// manager, digests included, so that this process can serve it.
class DiskLoad final : public transfer::LoadStrategy {
 public:
  /// All outlive it.
  DiskLoad(const LoaderContext& context, transfer::Session& session, std::string path, LoadOptions options)
      : context_(context), session_(session), path_(std::move(path)), options_(std::move(options)) {}

  std::string_view name() const override { return "disk"; }
  Result<void> available() override;
  Attempt attempt() override;
  void roll_back() override {
    if (std::exchange(registered_, false)) session_.manager().release();
  }

  /// Of the last attempt that succeeded.
  const LoadReport& report() const { return report_; }

 private:
  const LoaderContext& context_;
  transfer::Session& session_;
  std::string path_;
  LoadOptions options_;
  LoadReport report_;
  bool registered_ = false;  ///< what the manager has is ours
};

/// What was loaded, as a catalogue.
Result<transfer::Catalogue> catalogue_of(const LoadedCheckpoint& loaded);

}  // namespace towline::loader
