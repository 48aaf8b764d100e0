#!/usr/bin/env python3
"""Writes src/towline/control/internal/unicode_lower_rows.inc from this Python's Unicode data.

One row is {first, last, step, delta}: each code point first, first + step, ... last has the lower case
code point + delta. U+0130 (two code points) and the final sigma are code, not rows.
"""
import unicodedata

rows = []
for point in range(0x110000):
    low = chr(point).lower()
    if len(low) != 1 or ord(low) == point:
        continue
    delta = ord(low) - point
    if rows and rows[-1][3] == delta:
        first, last, step, _ = rows[-1]
        gap = point - last
        if gap <= 2 and (first == last or gap == step):
            rows[-1] = (first, point, gap, delta)
            continue
    rows.append((point, point, 1, delta))
print(f"// Lower-case mappings of Unicode {unicodedata.unidata_version}, written by tools/unicode_lower_rows.py. Do not edit.")
print("// clang-format off")
for first, last, step, delta in rows:
    print(f"{{0x{first:X}, 0x{last:X}, {step}, {delta}}},")
print("// clang-format on")
