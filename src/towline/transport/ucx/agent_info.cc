#include "towline/transport/ucx/agent_info.h"

#include <algorithm>

namespace towline::transport::ucx {
namespace {

void put(Blob& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(value >> 8 * i));
}

/// Takes fields from the front; says at the end whether all were there.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    const auto field = take(bytes);
    for (size_t i = 0; i < field.size(); ++i) value |= std::to_integer<uint64_t>(field[i]) << 8 * i;
    return value;
  }
  std::span<const std::byte> take(size_t bytes) {
    if (bytes > rest_.size()) {
      short_ = true;
      return {};
    }
    const auto field = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return field;
  }
  std::span<const std::byte> rest() const { return rest_; }
  bool is_short() const { return short_; }

 private:
  std::span<const std::byte> rest_;
  bool short_ = false;
};

}  // namespace

Blob encode_agent_info(const AgentInfo& info) {
  Blob out;
  put(out, info.process.pid, 8);
  put(out, info.process.pid_space, 8);
  out.insert(out.end(), info.hello.token.begin(), info.hello.token.end());
  put(out, info.hello.address, 8);
  put(out, info.hello_key, 4);
  put(out, info.process.boot.size(), 2);
  for (const char letter : info.process.boot) out.push_back(static_cast<std::byte>(letter));
  out.insert(out.end(), info.worker_address.begin(), info.worker_address.end());
  return out;
}

Result<AgentInfo> decode_agent_info(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  AgentInfo info;
  info.process.pid = reader.number(8);
  info.process.pid_space = reader.number(8);
  const auto token = reader.take(info.hello.token.size());
  std::copy(token.begin(), token.end(), info.hello.token.begin());
  info.hello.address = reader.number(8);
  info.hello_key = static_cast<uint32_t>(reader.number(4));
  const auto boot = reader.take(reader.number(2));
  info.process.boot.assign(reinterpret_cast<const char*>(boot.data()), boot.size());
  info.worker_address.assign(reader.rest().begin(), reader.rest().end());
  if (reader.is_short() || info.worker_address.empty())
    return fail(Code::kInvalidArgument, "agent metadata: {} bytes of ucx connection data are too few", bytes.size());
  return info;
}

Blob encode_key(const KeyInfo& key) {
  Blob out;
  put(out, key.view_shift, 8);
  out.insert(out.end(), key.packed.begin(), key.packed.end());
  return out;
}

Result<KeyInfo> decode_key(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const uint64_t shift = reader.number(8);
  if (reader.is_short() || reader.rest().empty())
    return fail(Code::kInvalidArgument, "agent metadata: a ucx key of {} bytes is too short", bytes.size());
  return KeyInfo{shift, reader.rest()};
}

}  // namespace towline::transport::ucx
