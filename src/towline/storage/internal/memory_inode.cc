#include "towline/storage/internal/memory_inode.h"

#include <algorithm>
#include <cstring>

namespace towline::storage::internal {

namespace {

/// Calls visit(page number, offset within it, offset within the range, bytes) for each page of a range.
template <typename Visit>
void for_each_page(uint64_t offset, size_t bytes, Visit visit) {
  for (size_t done = 0; done < bytes;) {
    const size_t within = (offset + done) % MemoryInode::kPageBytes;
    const size_t part = std::min(MemoryInode::kPageBytes - within, bytes - done);
    visit((offset + done) / MemoryInode::kPageBytes, within, done, part);
    done += part;
  }
}

}  // namespace

size_t MemoryInode::read(uint64_t offset, std::span<std::byte> to) const {
  if (offset >= size_.count()) return 0;
  const size_t bytes = std::min<uint64_t>(to.size(), size_.count() - offset);
  for_each_page(offset, bytes, [&](uint64_t number, size_t within, size_t done, size_t part) {
    const auto page = pages_.find(number);
    if (page == pages_.end())
      std::memset(to.data() + done, 0, part);
    else
      std::memcpy(to.data() + done, page->second->data() + within, part);
  });
  return bytes;
}

void MemoryInode::write(uint64_t offset, std::span<const std::byte> from) {
  for_each_page(offset, from.size(), [&](uint64_t number, size_t within, size_t done, size_t part) {
    std::shared_ptr<const Page>& page = pages_[number];
    auto changed = page == nullptr ? std::make_shared<Page>() : std::make_shared<Page>(*page);
    std::memcpy(changed->data() + within, from.data() + done, part);
    synced_pages_.try_emplace(number, std::move(page));
    page = std::move(changed);
  });
  grow(Bytes(offset) + Bytes(from.size()));
}

void MemoryInode::grow(Bytes size) {
  size_ = std::max(size_, size);
  footprint_ = std::max(footprint_, footprint_for(size_));
}

void MemoryInode::truncate() {
  for (auto& [number, page] : pages_) synced_pages_.try_emplace(number, std::move(page));
  pages_.clear();
  size_ = Bytes(0);
  footprint_ = Bytes(0);
}

void MemoryInode::reserve(Bytes bytes) { grow(bytes); }

void MemoryInode::sync() {
  synced_pages_.clear();
  synced_size_ = size_;
}

void MemoryInode::crash(Rng& rng, double page_survival) {
  for (auto& [number, page] : synced_pages_) {
    if (rng.real() < page_survival) continue;
    if (page == nullptr)
      pages_.erase(number);
    else
      pages_[number] = std::move(page);
  }
  // The size goes back as well; what survived past it is out of reach, and must not come back when the file grows.
  size_ = synced_size_;
  pages_.erase(pages_.lower_bound(footprint_for(size_) / Bytes(kPageBytes)), pages_.end());
  const auto last = pages_.find(size_.count() / kPageBytes);
  if (const size_t within = size_.count() % kPageBytes; within != 0 && last != pages_.end()) {
    auto cut = std::make_shared<Page>(*last->second);
    std::fill(cut->begin() + static_cast<std::ptrdiff_t>(within), cut->end(), std::byte{0});
    last->second = std::move(cut);
  }
  footprint_ = footprint_for(size_);
  synced_pages_.clear();
}

}  // namespace towline::storage::internal
