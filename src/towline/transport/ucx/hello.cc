#include "towline/transport/ucx/hello.h"

#include <cstring>

namespace towline::transport::ucx {

Result<std::unique_ptr<Hello>> Hello::open(std::shared_ptr<Context> context, const HelloToken& token) {
  return std::make_unique<Hello>(TOWLINE_TRY(Mapping::allocate(std::move(context), KiB(4))), token);
}

Hello::Hello(std::shared_ptr<const Mapping> page, const HelloToken& token) : page_(std::move(page)), token_(token) {
  show(token_);
}

void Hello::close() { show(HelloToken{}); }

void Hello::show(const HelloToken& token) {
  for (size_t i = 0; i < token.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, token.data() + i, sizeof(word));
    __atomic_store_n(reinterpret_cast<uint64_t*>(page_->data() + i), word, __ATOMIC_RELEASE);
  }
}

}  // namespace towline::transport::ucx
