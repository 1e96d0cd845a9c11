// Sizes, rates and times as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nightsweep {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// "22GiB", "500MB", "1.5 GB", "4096". KB/MB/GB/TB are powers of 1000, KiB/MiB/GiB/TiB of 1024, a
// lone K, M, G, T is of 1024. Throws Error(usage) that names `option`.
uint64_t parse_size(std::string_view text, std::string_view option);

// "6.5GB/s" in bytes a second; the "/s" may be left out.
double parse_rate(std::string_view text, std::string_view option);

// "90s", "15min", "24h", "7d" in seconds; above 0.
double parse_duration(std::string_view text, std::string_view option);

// "1.50 GiB", "312 KiB"
std::string size_text(uint64_t size_bytes);
// "2.04 GB/s"
std::string rate_text(double bytes_per_s);
// "2 h 05 min", "3 min 20 s", "4.2 s"
std::string duration_text(double seconds);

}  // namespace nightsweep
