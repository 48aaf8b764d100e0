#pragma once

#include "towline/transport/ucx/context.h"
#include "towline/transport/ucx/process.h"

namespace towline::transport::ucx {

/// The page by which peers know that this agent is open. Closed by the destructor at the latest.
class Hello {
 public:
  static Result<std::unique_ptr<Hello>> open(std::shared_ptr<Context> context, const HelloToken& token);
  Hello(std::shared_ptr<const Mapping> page, const HelloToken& token);
  Hello(const Hello&) = delete;
  Hello& operator=(const Hello&) = delete;
  ~Hello() { close(); }

  /// From now on peers see that it has gone.
  void close();
  HelloPlace place() const { return {token_, Address::of(page_->data()).value()}; }
  const Blob& key() const { return page_->key(); }

 private:
  void show(const HelloToken& token);

  const std::shared_ptr<const Mapping> page_;
  const HelloToken token_;
};

}  // namespace towline::transport::ucx
