#include "towline/reshard/op_chain.h"

#include <fmt/ranges.h>

namespace towline::reshard {
namespace {

const char* name_of(OpKind kind) {
  constexpr const char* kNames[] = {"narrow", "view",    "reshape", "__getitem__", "unsqueeze", "squeeze", "transpose",
                                    "t",      "permute", "flatten", "contiguous",  "chunk",     "unbind"};
  return kNames[static_cast<size_t>(kind)];
}

std::string text_of(const std::optional<int64_t>& bound) { return bound ? std::to_string(*bound) : std::string(); }

std::string to_string(const IndexItem& item) {
  switch (item.kind) {
    case IndexItem::Kind::kNumber:
      return std::to_string(item.number);
    case IndexItem::Kind::kEllipsis:
      return "...";
    case IndexItem::Kind::kNewAxis:
      return "None";
    case IndexItem::Kind::kSlice:
      break;
  }
  std::string text = text_of(item.start) + ":" + text_of(item.stop);
  if (item.step) text += ":" + text_of(item.step);
  return text;
}

}  // namespace

std::string to_string(const Op& op) {
  if (op.kind != OpKind::kGetItem) return fmt::format("{}({})", name_of(op.kind), fmt::join(op.numbers, ", "));
  std::vector<std::string> items;
  for (const IndexItem& item : op.index) items.push_back(to_string(item));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string to_string(const OpChain& chain) {
  std::string text;
  for (const Op& op : chain) {
    if (!text.empty() && op.kind != OpKind::kGetItem) text += ".";
    text += to_string(op);
  }
  return text;
}

}  // namespace towline::reshard
