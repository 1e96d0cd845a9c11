// One connection to the queue's file: prepared statements, transactions that are tried again while
// the file is busy, and the one place where SQLite's failures become Errors.
//
// One thread. Statements run inside read() or write() only.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace SQLite {
class Database;
class Statement;
}  // namespace SQLite

namespace nightsweep {

// A prepared statement in use. It is reset when this goes, whatever happened: an open statement
// would keep its lock and make the next COMMIT fail.
class Query {
 public:
  explicit Query(SQLite::Statement& statement);
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  // Values for the question marks, in order.
  template <std::integral T>
  Query& with(T value) {
    return with_integer(static_cast<int64_t>(value));
  }
  Query& with(const std::string& text);
  Query& with_null_if_empty(const std::string& text);
  Query& with_null_if_zero(int64_t value);
  Query& with(double value);
  Query& with_null_if_negative(double value);
  Query& with_blob(const std::string& bytes);

  // True: a row is there.
  bool step();
  // To the end; returns the number of rows changed.
  int64_t run();

  // Columns of the row, from 0. NULL reads as 0 and "".
  int64_t integer(int column) const;
  double real(int column) const;
  bool is_null(int column) const;
  std::string text(int column) const;

 private:
  Query& with_integer(int64_t value);

  SQLite::Statement& statement_;
  int n_bound_ = 0;
};

class Connection {
 public:
  // Creates the file when it is missing: 0600, or 0660 where its folder is setgid and writable by
  // its group. Refuses a symbolic link and a file of several names: their journal would not be
  // found. Waits up to busy_timeout_ms for each lock.
  Connection(std::string path, int busy_timeout_ms);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::string& path() const { return path_; }

  // Prepared once for each text.
  Query query(const std::string& sql);
  // One or more statements that give no rows.
  void run(const std::string& script);

  // Runs `body` in a transaction BEGIN IMMEDIATE and commits it. While the file is busy the whole
  // is tried again, a bounded number of times: `body` must begin from nothing each time, and hand
  // its findings out by its return value. Throws Error; then nothing of it was written, or, after
  // an I/O error, the next open decides, and this connection writes no more.
  template <typename Body>
  auto write(Body&& body) {
    return returning(&Connection::write_transaction, std::forward<Body>(body));
  }
  // Statements that write nothing. Not a transaction: each statement sees the newest state.
  template <typename Body>
  auto read(Body&& body) {
    return returning(&Connection::read_statements, std::forward<Body>(body));
  }

  // Copies all pages into the file `path`, which must be empty or a database. A writer is waited
  // for and starts the copy again, the third time it has to wait itself.
  void copy_to(const std::string& path);

  // A rollback journal that is truncated, and synced with the database: the WAL of SQLite before
  // 3.51.3 can lose commits when two processes write.
  void use_rollback_journal();

 private:
  template <typename Body>
  auto returning(void (Connection::*run_body)(const std::function<void()>&), Body&& body) {
    using Value = std::invoke_result_t<Body>;
    if constexpr (std::is_void_v<Value>) {
      (this->*run_body)(body);
    } else {
      std::optional<Value> value;
      (this->*run_body)([&] { value.emplace(body()); });
      return std::move(*value);
    }
  }
  void write_transaction(const std::function<void()>& body);
  void read_statements(const std::function<void()>& body);
  void commit();
  void roll_back() noexcept;

  std::string path_;
  bool is_broken_ = false;
  std::unique_ptr<SQLite::Database> database_;
  // After database_, so that they go first: closing with open statements fails.
  std::unordered_map<std::string, std::unique_ptr<SQLite::Statement>> statements_;
};

}  // namespace nightsweep
