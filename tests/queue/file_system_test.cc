#include "queue/file_system.h"

#include <gtest/gtest.h>

namespace nightsweep {
namespace {

TEST(FileSystem, shared_ones_are_known_by_their_number) {
  EXPECT_STREQ(name_if_shared(0x6969), "NFS");
  EXPECT_STREQ(name_if_shared(0xFF534D42), "CIFS");
  EXPECT_STREQ(name_if_shared(0xFE534D42), "SMB");
  EXPECT_STREQ(name_if_shared(0x65735546), "FUSE");
  EXPECT_STREQ(name_if_shared(0x01021997), "9p");
  // f_type is signed on some machines.
  EXPECT_STREQ(name_if_shared(static_cast<uint64_t>(static_cast<int32_t>(0xFF534D42))), "CIFS");
}

TEST(FileSystem, local_ones_are_let_through) {
  // ext4, xfs, btrfs, tmpfs, overlayfs, zfs, f2fs
  for (uint64_t type :
       {0xEF53UL, 0x58465342UL, 0x9123683EUL, 0x01021994UL, 0x794C7630UL, 0x2FC12FC1UL,
        0xF2F52010UL}) {
    EXPECT_EQ(name_if_shared(type), nullptr) << type;
  }
}

}  // namespace
}  // namespace nightsweep
