#include "support/fault_vfs.h"

#include <algorithm>
#include <cstring>

namespace nightsweep {

const sqlite3_io_methods FaultVfs::kMethods = {
    .iVersion = 1,
    .xClose = close,
    .xRead = read,
    .xWrite = write,
    .xTruncate = truncate,
    .xSync = sync,
    .xFileSize = file_size,
    .xLock = lock,
    .xUnlock = unlock,
    .xCheckReservedLock = check_reserved,
    .xFileControl = control,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = characteristics,
    .xShmMap = nullptr,
    .xShmLock = nullptr,
    .xShmBarrier = nullptr,
    .xShmUnmap = nullptr,
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

FaultVfs::FaultVfs() : former_(sqlite3_vfs_find(nullptr)) {
  vfs_.iVersion = 1;
  vfs_.szOsFile = sizeof(Handle);
  vfs_.mxPathname = 512;
  vfs_.zName = "fault";
  vfs_.pAppData = this;
  vfs_.xOpen = open;
  vfs_.xDelete = remove;
  vfs_.xAccess = access;
  vfs_.xFullPathname = full_path;
  vfs_.xRandomness = randomness;
  vfs_.xSleep = sleep;
  vfs_.xCurrentTime = time;
  vfs_.xGetLastError = last_error;
  sqlite3_vfs_register(&vfs_, 1);
}

FaultVfs::~FaultVfs() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(former_, 1);
}

void FaultVfs::arm(Fault fault, uint64_t n, uint32_t seed) {
  fault_ = fault;
  left_ = n;
  has_fired_ = false;
  random_.seed(seed);
}

int FaultVfs::strike(std::initializer_list<Fault> faults, int code) {
  if (is_dead_) return SQLITE_IOERR;
  if (has_fired_ || std::find(faults.begin(), faults.end(), fault_) == faults.end()) {
    return SQLITE_OK;
  }
  if (--left_ > 0) return SQLITE_OK;
  has_fired_ = true;
  is_dead_ = fault_ == Fault::kill || fault_ == Fault::power_cut || fault_ == Fault::torn_write;
  return code;
}

void FaultVfs::apply(std::string& content, const Change& change) {
  if (change.is_truncate) {
    if (content.size() > change.offset) content.resize(change.offset);
    return;
  }
  content.resize(std::max<size_t>(content.size(), change.offset + change.data.size()));
  std::copy(
      change.data.begin(), change.data.end(),
      content.begin() + static_cast<std::ptrdiff_t>(change.offset));
}

void FaultVfs::lose_unsynced(File& file) {
  // All, nothing, or a part of it, each sector for itself.
  unsigned luck = random_() % 4;
  for (const Change& change : file.unsynced) {
    if (change.is_truncate) {
      if (luck != 0 && (luck == 1 || random_() % 2 == 0)) apply(file.on_disk, change);
      continue;
    }
    for (uint64_t at = 0; at < change.data.size();) {
      uint64_t begin = change.offset + at;
      uint64_t size = std::min<uint64_t>(kSector - begin % kSector, change.data.size() - at);
      if (luck != 0 && (luck == 1 || random_() % 2 == 0)) {
        apply(file.on_disk, {.offset = begin, .data = change.data.substr(at, size)});
      }
      at += size;
    }
  }
  file.unsynced.clear();
  file.now = file.on_disk;
}

void FaultVfs::restart(bool with_power_cut) {
  is_dead_ = false;
  fault_ = Fault::none;
  for (auto at = files_.begin(); at != files_.end();) {
    File& file = *at->second;
    file.n_shared = 0;
    file.reserved = file.pending = file.exclusive = nullptr;
    if (with_power_cut) lose_unsynced(file);
    bool is_lost = with_power_cut && !file.is_entry_synced && random_() % 2 == 0;
    at = is_lost ? files_.erase(at) : std::next(at);
  }
}

int FaultVfs::open(
    sqlite3_vfs* vfs,
    const char* name,
    sqlite3_file* out,
    int flags,
    int* out_flags) {
  FaultVfs& self = *of(vfs);
  out->pMethods = nullptr;
  if (self.strike({Fault::open}, SQLITE_CANTOPEN) != SQLITE_OK) return SQLITE_CANTOPEN;
  std::shared_ptr<File> file;
  if (name == nullptr) {
    file = std::make_shared<File>();
  } else if (auto known = self.files_.find(name); known != self.files_.end()) {
    file = known->second;
  } else {
    if ((flags & SQLITE_OPEN_CREATE) == 0) return SQLITE_CANTOPEN;
    file = std::make_shared<File>();
    // The queue makes its file itself and syncs the folder.
    file->is_entry_synced = (flags & SQLITE_OPEN_MAIN_DB) != 0;
    self.files_[name] = file;
  }
  Handle* made = handle(out);
  made->owner = &self;
  made->file = new std::shared_ptr<File>(std::move(file));
  made->lock = SQLITE_LOCK_NONE;
  made->base.pMethods = &kMethods;
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int FaultVfs::remove(sqlite3_vfs* vfs, const char* name, int /*sync_folder*/) {
  FaultVfs& self = *of(vfs);
  int code = self.strike({Fault::kill, Fault::power_cut}, SQLITE_IOERR_DELETE);
  if (code != SQLITE_OK) return code;
  return self.files_.erase(name) > 0 ? SQLITE_OK : SQLITE_IOERR_DELETE_NOENT;
}

int FaultVfs::access(sqlite3_vfs* vfs, const char* name, int /*flags*/, int* result) {
  *result = of(vfs)->files_.contains(name) ? 1 : 0;
  return SQLITE_OK;
}

int FaultVfs::full_path(sqlite3_vfs*, const char* name, int size, char* out) {
  sqlite3_snprintf(size, out, "%s", name);
  return SQLITE_OK;
}

int FaultVfs::randomness(sqlite3_vfs* vfs, int size, char* out) {
  sqlite3_vfs* former = of(vfs)->former_;
  return former->xRandomness(former, size, out);
}

int FaultVfs::sleep(sqlite3_vfs*, int microseconds) {
  return microseconds;
}

int FaultVfs::time(sqlite3_vfs* vfs, double* julian) {
  sqlite3_vfs* former = of(vfs)->former_;
  return former->xCurrentTime(former, julian);
}

int FaultVfs::close(sqlite3_file* file) {
  unlock(file, SQLITE_LOCK_NONE);
  delete handle(file)->file;
  return SQLITE_OK;
}

int FaultVfs::read(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
  if (handle(file)->owner->is_dead_) return SQLITE_IOERR_READ;
  const std::string& content = state(file).now;
  auto begin = std::min<size_t>(static_cast<size_t>(offset), content.size());
  size_t there = std::min<size_t>(static_cast<size_t>(size), content.size() - begin);
  std::memcpy(out, content.data() + begin, there);
  if (there == static_cast<size_t>(size)) return SQLITE_OK;
  std::memset(static_cast<char*>(out) + there, 0, static_cast<size_t>(size) - there);
  return SQLITE_IOERR_SHORT_READ;
}

int FaultVfs::write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
  FaultVfs& self = *handle(file)->owner;
  bool was_dead = self.is_dead_;
  int code = self.strike(
      {Fault::write, Fault::full, Fault::torn_write, Fault::kill, Fault::power_cut},
      self.fault_ == Fault::full ? SQLITE_FULL : SQLITE_IOERR_WRITE);
  Change change{
      .offset = static_cast<uint64_t>(offset),
      .data = std::string(static_cast<const char*>(data), static_cast<size_t>(size))};
  if (code != SQLITE_OK) {
    if (was_dead || self.fault_ != Fault::torn_write) return code;
    change.data.resize(change.data.size() / 2);
  }
  apply(state(file).now, change);
  state(file).unsynced.push_back(std::move(change));
  return code;
}

int FaultVfs::truncate(sqlite3_file* file, sqlite3_int64 size) {
  int code = handle(file)->owner->strike(
      {Fault::truncate, Fault::kill, Fault::power_cut}, SQLITE_IOERR_TRUNCATE);
  if (code != SQLITE_OK) return code;
  Change change{.is_truncate = true, .offset = static_cast<uint64_t>(size), .data = {}};
  apply(state(file).now, change);
  state(file).unsynced.push_back(std::move(change));
  return SQLITE_OK;
}

int FaultVfs::sync(sqlite3_file* file, int /*flags*/) {
  FaultVfs& self = *handle(file)->owner;
  bool was_dead = self.is_dead_;
  int code = self.strike({Fault::sync, Fault::kill, Fault::power_cut}, SQLITE_IOERR_FSYNC);
  File& found = state(file);
  if (code != SQLITE_OK) {
    // Linux marks the pages clean: a later sync succeeds without them.
    if (!was_dead && self.fault_ == Fault::sync) found.unsynced.clear();
    return code;
  }
  for (const Change& change : found.unsynced)
    apply(found.on_disk, change);
  found.unsynced.clear();
  found.is_entry_synced = true;
  return SQLITE_OK;
}

int FaultVfs::file_size(sqlite3_file* file, sqlite3_int64* size) {
  *size = static_cast<sqlite3_int64>(state(file).now.size());
  return handle(file)->owner->is_dead_ ? SQLITE_IOERR_FSTAT : SQLITE_OK;
}

// sqlite.org/lockingv3.html
int FaultVfs::lock(sqlite3_file* file, int level) {
  Handle* me = handle(file);
  File& found = state(file);
  auto is_other = [&](const void* holder) { return holder != nullptr && holder != me; };
  if (level <= me->lock) return SQLITE_OK;
  if (me->lock == SQLITE_LOCK_NONE) {
    if (is_other(found.pending) || is_other(found.exclusive)) return SQLITE_BUSY;
    ++found.n_shared;
    me->lock = SQLITE_LOCK_SHARED;
  }
  if (level >= SQLITE_LOCK_RESERVED && me->lock < SQLITE_LOCK_RESERVED) {
    if (is_other(found.reserved)) return SQLITE_BUSY;
    found.reserved = me;
    me->lock = SQLITE_LOCK_RESERVED;
  }
  if (level == SQLITE_LOCK_EXCLUSIVE) {
    if (is_other(found.pending)) return SQLITE_BUSY;
    found.pending = me;
    me->lock = SQLITE_LOCK_PENDING;
    if (found.n_shared > 1) return SQLITE_BUSY;
    found.exclusive = me;
    me->lock = SQLITE_LOCK_EXCLUSIVE;
  }
  return SQLITE_OK;
}

int FaultVfs::unlock(sqlite3_file* file, int level) {
  Handle* me = handle(file);
  File& found = state(file);
  if (level >= me->lock) return SQLITE_OK;
  for (const void** holder : {&found.reserved, &found.pending, &found.exclusive}) {
    if (*holder == me) *holder = nullptr;
  }
  if (level == SQLITE_LOCK_NONE && found.n_shared > 0) --found.n_shared;
  me->lock = level;
  return SQLITE_OK;
}

int FaultVfs::check_reserved(sqlite3_file* file, int* result) {
  *result = state(file).reserved != nullptr ? 1 : 0;
  return SQLITE_OK;
}

}  // namespace nightsweep
