// A file system in memory for SQLite that can fail. While an object lives it is SQLite's default,
// so the code under test needs no door for it.
//
// Of every file it knows what the process sees and what a power cut would leave: a write reaches
// the disk with the sync after it, or by chance, in pieces of a sector and in any order. One
// thread.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace nightsweep {

class FaultVfs {
 public:
  enum class Fault {
    none,
    write,       // fails, nothing is written
    full,        // the disk is full
    sync,        // fails; what it should have synced never reaches the disk, as on Linux
    truncate,    // fails
    open,        // fails
    torn_write,  // the first half is written, then the process is dead
    kill,        // the process is dead before the operation
    power_cut,   // so is the machine: what was not synced is lost, or not
  };

  FaultVfs();
  ~FaultVfs();
  FaultVfs(const FaultVfs&) = delete;
  FaultVfs& operator=(const FaultVfs&) = delete;

  // The n-th operation of the fault's kind from now on (from 1) fails, once.
  void arm(Fault fault, uint64_t n, uint32_t seed);
  bool has_fired() const { return has_fired_; }
  // A new process on what is there; after a power cut on what the disk kept. All connections of the
  // old one must be closed.
  void restart(bool with_power_cut);

 private:
  struct Change {
    bool is_truncate = false;
    uint64_t offset = 0;  // of a truncate: the new size
    std::string data;
  };
  struct File {
    std::string now;
    std::string on_disk;
    std::vector<Change> unsynced;
    bool is_entry_synced = false;  // its name survives a power cut
    int n_shared = 0;
    const void* reserved = nullptr;
    const void* pending = nullptr;
    const void* exclusive = nullptr;
  };
  struct Handle {
    sqlite3_file base;
    FaultVfs* owner;
    std::shared_ptr<File>* file;  // on the heap: SQLite allocates a Handle as bytes
    int lock;
  };

  // What becomes of an operation that `fault` may strike: SQLITE_OK, or the code it ends with.
  int strike(std::initializer_list<Fault> faults, int code);
  static void apply(std::string& content, const Change& change);
  void lose_unsynced(File& file);

  static FaultVfs* of(sqlite3_vfs* vfs) { return static_cast<FaultVfs*>(vfs->pAppData); }
  static Handle* handle(sqlite3_file* file) { return reinterpret_cast<Handle*>(file); }
  static File& state(sqlite3_file* file) { return **handle(file)->file; }

  static int open(sqlite3_vfs*, const char* name, sqlite3_file*, int flags, int* out_flags);
  static int remove(sqlite3_vfs*, const char* name, int sync_folder);
  static int access(sqlite3_vfs*, const char* name, int flags, int* result);
  static int full_path(sqlite3_vfs*, const char* name, int size, char* out);
  static int randomness(sqlite3_vfs*, int size, char* out);
  static int sleep(sqlite3_vfs*, int microseconds);
  static int time(sqlite3_vfs*, double* julian);
  static int last_error(sqlite3_vfs*, int, char*) { return 0; }

  static int close(sqlite3_file*);
  static int read(sqlite3_file*, void* out, int size, sqlite3_int64 offset);
  static int write(sqlite3_file*, const void* data, int size, sqlite3_int64 offset);
  static int truncate(sqlite3_file*, sqlite3_int64 size);
  static int sync(sqlite3_file*, int flags);
  static int file_size(sqlite3_file*, sqlite3_int64* size);
  static int lock(sqlite3_file*, int level);
  static int unlock(sqlite3_file*, int level);
  static int check_reserved(sqlite3_file*, int* result);
  static int control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
  static int sector_size(sqlite3_file*) { return kSector; }
  static int characteristics(sqlite3_file*) { return 0; }

  static constexpr int kSector = 512;
  static const sqlite3_io_methods kMethods;

  sqlite3_vfs* former_;
  sqlite3_vfs vfs_{};
  std::map<std::string, std::shared_ptr<File>> files_;
  Fault fault_ = Fault::none;
  uint64_t left_ = 0;
  bool has_fired_ = false;
  bool is_dead_ = false;
  std::mt19937 random_;
};

}  // namespace nightsweep
