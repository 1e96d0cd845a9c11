#include "queue/connection.h"

#include <SQLiteCpp/Backup.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Statement.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <filesystem>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/file.h"

namespace nightsweep {

namespace {

constexpr int kMaxBusyTries = 4;

// Locks of several processes that wait in step would meet again and again.
void pause_before_try(int next_try) {
  thread_local std::minstd_rand random(std::random_device{}());
  std::uniform_int_distribution<int> ms(5, 25 * next_try);
  std::this_thread::sleep_for(std::chrono::milliseconds(ms(random)));
}

bool is_busy(const SQLite::Exception& error) {
  int code = error.getErrorCode() & 0xFF;
  return code == SQLITE_BUSY || code == SQLITE_LOCKED;
}

bool is_io_error(const SQLite::Exception& error) {
  return (error.getErrorCode() & 0xFF) == SQLITE_IOERR;
}

[[noreturn]] void fail_sqlite(const SQLite::Exception& error, const std::string& path) {
  int extended = error.getExtendedErrorCode();
  // SQLiteCpp's own text can be "not an error" after a failed step; the code is right.
  std::string reason = sqlite3_errstr(error.getErrorCode());
  switch (error.getErrorCode() & 0xFF) {
    case SQLITE_FULL:
      fail(
          ErrorKind::storage,
          "{}: the disk is full, there or where temporary files go (free some space, or name "
          "another folder in SQLITE_TMPDIR, and start again; all that was acknowledged is kept)",
          path);
    case SQLITE_IOERR:
      fail(
          ErrorKind::storage,
          "{}: I/O error {} (check the disk and the kernel's log, then start again: all that was "
          "acknowledged is kept)",
          path, extended);
    case SQLITE_READONLY:
      if (extended == SQLITE_READONLY_DBMOVED) {
        fail(
            ErrorKind::queue,
            "{}: the file was moved or deleted while it was in use (put it back, or start again "
            "with a new one)",
            path);
      }
      fail(
          ErrorKind::storage,
          "{}: the file or its folder cannot be written (check owner, permissions and that the "
          "file system is not read-only, or choose another place with --queue)",
          path);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      fail(
          ErrorKind::queue,
          "{}: expected a file that can be opened, found: {} (check the path, its owner and "
          "permissions, or choose another place with --queue)",
          path, reason);
    case SQLITE_NOTADB:
      fail(
          ErrorKind::queue,
          "{}: expected a Nightsweep queue, found a file that is no SQLite database (name another "
          "file with --queue)",
          path);
    case SQLITE_CORRUPT:
      fail(
          ErrorKind::queue,
          "{}: the database is damaged (copy the file away, recover it with `sqlite3 {} .recover`, "
          "or restore a backup)",
          path, path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      fail(
          ErrorKind::queue,
          "{}: another process has kept the queue locked, nothing was written (end what reads or "
          "writes it, for example an open sqlite3 shell, and try again)",
          path);
    default:
      fail(
          ErrorKind::internal, "{}: SQLite: {} ({}, code {})", path, error.what(), reason,
          extended);
  }
}

// Its journal lies beside the name by which it was opened: under another name it would be missed.
void refuse_links(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return;
  if (S_ISLNK(found.st_mode)) {
    fail(
        ErrorKind::queue,
        "{}: expected the queue's file, found a symbolic link (name the file itself with --queue)",
        path);
  }
  if (S_ISREG(found.st_mode) && found.st_nlink > 1) {
    fail(
        ErrorKind::queue,
        "{}: expected a file of one name, found {} hard links to it (remove the others: a journal "
        "under another name would be missed)",
        path, found.st_nlink);
  }
}

// SQLite would create it readable by all, and would not sync its entry in the folder. Its journal
// takes the mode of the file.
void create_private(const std::string& path) {
  refuse_links(path);
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.is_open()) {
    if (errno == EEXIST) return;
    fail_errno(ErrorKind::queue, errno, path);
  }
  // Whatever the umask says.
  if (::fchmod(fd.value(), private_mode(folder.string())) != 0)
    fail_errno(ErrorKind::queue, errno, path);
  FileDescriptor folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_fd.is_open() || ::fsync(folder_fd.value()) != 0) {
    fail_errno(ErrorKind::storage, errno, folder.string());
  }
}

}  // namespace

// Bindings outlive a reset: what this use leaves out must be NULL.
Query::Query(SQLite::Statement& statement) : statement_(statement) {
  statement_.clearBindings();
}

Query::~Query() {
  statement_.tryReset();
}

Query& Query::with_integer(int64_t value) {
  statement_.bind(++n_bound_, value);
  return *this;
}

Query& Query::with(double value) {
  statement_.bind(++n_bound_, value);
  return *this;
}

Query& Query::with_null_if_negative(double value) {
  if (value >= 0) return with(value);
  statement_.bind(++n_bound_);
  return *this;
}

Query& Query::with(const std::string& text) {
  statement_.bind(++n_bound_, text);
  return *this;
}

Query& Query::with_null_if_empty(const std::string& text) {
  if (!text.empty()) return with(text);
  statement_.bind(++n_bound_);
  return *this;
}

Query& Query::with_null_if_zero(int64_t value) {
  if (value != 0) return with(value);
  statement_.bind(++n_bound_);
  return *this;
}

Query& Query::with_blob(const std::string& bytes) {
  // A null pointer would bind NULL.
  statement_.bind(++n_bound_, bytes.empty() ? "" : bytes.data(), static_cast<int>(bytes.size()));
  return *this;
}

bool Query::step() {
  return statement_.executeStep();
}

int64_t Query::run() {
  // Statement::exec() would throw at the first row of a RETURNING.
  while (statement_.executeStep()) {
  }
  return statement_.getChanges();
}

int64_t Query::integer(int column) const {
  return statement_.getColumn(column).getInt64();
}

double Query::real(int column) const {
  return statement_.getColumn(column).getDouble();
}

bool Query::is_null(int column) const {
  return statement_.getColumn(column).isNull();
}

std::string Query::text(int column) const {
  return statement_.getColumn(column).getString();
}

Connection::Connection(std::string path, int busy_timeout_ms) : path_(std::move(path)) {
  create_private(path_);
  try {
    database_ = std::make_unique<SQLite::Database>(
        path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, busy_timeout_ms);
    database_->exec("PRAGMA foreign_keys = ON");
    database_->exec("PRAGMA synchronous = FULL");
    database_->exec("PRAGMA temp_store = FILE");
    database_->exec("PRAGMA cache_size = -16384");
    database_->exec("PRAGMA temp.cache_size = -16384");
  } catch (const SQLite::Exception& error) {
    fail_sqlite(error, path_);
  }
}

Connection::~Connection() = default;

Query Connection::query(const std::string& sql) {
  std::unique_ptr<SQLite::Statement>& statement = statements_[sql];
  if (statement == nullptr) statement = std::make_unique<SQLite::Statement>(*database_, sql);
  return Query(*statement);
}

void Connection::run(const std::string& script) {
  database_->exec(script);
}

void Connection::write_transaction(const std::function<void()>& body) {
  if (is_broken_) {
    fail(
        ErrorKind::storage,
        "{}: an earlier I/O error has left open what is on the disk (start again: that decides it)",
        path_);
  }
  for (int n_tries = 1;; ++n_tries) {
    try {
      database_->exec("BEGIN IMMEDIATE");
      body();
      commit();
      return;
    } catch (const SQLite::Exception& error) {
      roll_back();
      // Linux drops what an fsync could not write: a later one would succeed without it.
      if (is_io_error(error)) is_broken_ = true;
      if (!is_busy(error) || n_tries == kMaxBusyTries) fail_sqlite(error, path_);
    } catch (...) {
      roll_back();
      throw;
    }
    pause_before_try(n_tries + 1);
  }
}

void Connection::read_statements(const std::function<void()>& body) {
  for (int n_tries = 1;; ++n_tries) {
    try {
      body();
      return;
    } catch (const SQLite::Exception& error) {
      if (!is_busy(error) || n_tries == kMaxBusyTries) fail_sqlite(error, path_);
    }
    pause_before_try(n_tries + 1);
  }
}

// A reader in the middle of a statement makes COMMIT busy and leaves the transaction open: the
// COMMIT is tried again, not the work.
void Connection::commit() {
  for (int n_tries = 1;; ++n_tries) {
    try {
      database_->exec("COMMIT");
      return;
    } catch (const SQLite::Exception& error) {
      bool is_open = sqlite3_get_autocommit(database_->getHandle()) == 0;
      if (!is_busy(error) || !is_open) throw;
      // Nobody is helped by doing the work again to wait at the same place.
      if (n_tries == kMaxBusyTries) fail_sqlite(error, path_);
    }
    pause_before_try(n_tries + 1);
  }
}

// Disk full and some others have rolled back already.
void Connection::roll_back() noexcept {
  if (sqlite3_get_autocommit(database_->getHandle()) != 0) return;
  sqlite3_exec(database_->getHandle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Connection::copy_to(const std::string& path) {
  constexpr int kPagesAtOnce = 1024;
  constexpr int kMostRestarts = 2;
  try {
    SQLite::Database copy(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    SQLite::Backup backup(copy, *database_);
    int n_restarts = 0;
    int least_left = INT_MAX;
    for (;;) {
      int pages = n_restarts > kMostRestarts ? -1 : kPagesAtOnce;
      int code = backup.executeStep(pages);
      if (code == SQLITE_DONE) return;
      if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
        pause_before_try(2);
        continue;
      }
      // A write by another process begins the copy anew.
      int left = backup.getRemainingPageCount();
      if (left >= least_left) {
        ++n_restarts;
        least_left = INT_MAX;
      } else {
        least_left = left;
      }
    }
  } catch (const SQLite::Exception& error) {
    fail_sqlite(error, path);
  }
}

void Connection::use_rollback_journal() {
  std::string mode = read([&] {
    Query query = this->query("PRAGMA journal_mode = TRUNCATE");
    query.step();
    return query.text(0);
  });
  if (mode != "truncate") {
    fail(
        ErrorKind::queue,
        "{}: expected to set journal mode truncate, found {} (close other programs that have the "
        "file open)",
        path_, mode);
  }
}

}  // namespace nightsweep
