#include "runner/doctor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "kernels/device.h"
#include "queue/queue.h"
#include "runner/energy.h"
#include "runner/model_source.h"
#include "runner/window.h"

namespace nightsweep {

namespace {

using Level = Finding::Level;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Examination {
 public:
  explicit Examination(const CommonOptions& options) : options_(options) {}

  std::vector<Finding> run() {
    check("queue", [&] { queue(); });
    check("disk", [&] { disk(); });
    check("device", [&] { device(); });
    check("model", [&] { model(); });
    check("windows", [&] { windows(); });
    check("locked memory", [&] { locked_memory(); });
    check("io_uring", [&] { io_uring(); });
    check("driver", [&] { driver(); });
    check("energy", [&] { energy(); });
    check("clock", [&] { clock(); });
    check("fault", [&] { fault(); });
    return std::move(findings_);
  }

 private:
  template <typename Body>
  void check(const char* name, Body&& body) {
    name_ = name;
    try {
      body();
    } catch (const Error& error) {
      // What throws here ends the worker too; its text has the remedy.
      add(Level::error, error.what(), "see the message", error.kind());
    }
  }
  void add(
      Level level,
      std::string text,
      std::string remedy = "",
      ErrorKind kind = ErrorKind::internal) {
    findings_.push_back(
        {.level = level,
         .check = name_,
         .text = std::move(text),
         .remedy = std::move(remedy),
         .kind = kind});
  }

  std::string folder() const {
    std::string parent = std::filesystem::path(queue_path_of(options_)).parent_path().string();
    return parent.empty() ? "." : parent;
  }

  void queue() {
    const std::string& path = queue_path_of(options_);
    auto queue = Queue::open_existing(path);
    if (queue == nullptr) {
      add(Level::note, format("{}: no queue yet", path), "nightsweep submit makes one");
      return;
    }
    QueueHealth health = queue->health();
    add(Level::ok,
        format("{}: schema {}, {}", path, health.schema_version, size_text(health.file_bytes)));
    // Nothing is wrong with the choice: it is told so that nobody wonders.
    add(Level::ok,
        format(
            "SQLite {}, journal mode {}: {}", health.sqlite_version, health.journal_mode,
            health.has_wal_fix
                ? "a rollback journal, which every version keeps safe"
                : "WAL would lose commits in this version (WAL-reset bug, fixed in 3.51.3)"));
    if (health.integrity == "ok") {
      add(Level::ok, "PRAGMA integrity_check: ok");
    } else {
      add(Level::error, "damaged: " + health.integrity,
          format("copy the file away and recover it: sqlite3 {} .recover", path), ErrorKind::queue);
    }
    if (health.ended_uncleanly) {
      add(Level::warning, "the last worker did not end in order (killed, crash, or power cut)",
          "nothing to do: the next start recovers its jobs; look into the log for the cause");
    }
    auto worker = queue->worker();
    if (worker && worker->is_alive) {
      add(Level::note, format("a worker is at work (pid {} on {})", worker->pid, worker->host),
          "a second one would end with 6");
    }
    Control control = queue->control();
    if (control.is_paused) add(Level::warning, "work is paused", "nightsweep resume");
    n_unanswered_ = health.n_unanswered;
    unanswered_bytes_ = health.unanswered_bytes;
  }

  // Answers come to the file; checkpoints, and the rollback journal beside it, need some room more.
  void disk() {
    std::string place = folder();
    while (!std::filesystem::exists(place) && place != "/" && place != ".")
      place = std::filesystem::path(place).parent_path().string();
    struct statvfs info {};
    if (::statvfs(place.c_str(), &info) != 0) fail_errno(ErrorKind::queue, errno, place);
    constexpr uint64_t kRoomForJournal = 64 << 20;
    uint64_t free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
    uint64_t needed = kRoomForJournal + unanswered_bytes_;
    std::string text = format(
        "{}: {} free, the queue may need {} ({} lines to answer)", place, size_text(free_bytes),
        size_text(needed), n_unanswered_);
    if (free_bytes < needed) {
      add(Level::error, text, "free some space, nightsweep prune --compact, or --queue elsewhere",
          ErrorKind::storage);
    } else {
      add(Level::ok, text);
    }
    std::string probe = format("{}/.nightsweep-doctor-{}", place, ::getpid());
    FileDescriptor fd(::open(probe.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd.is_open()) {
      add(Level::error, format("{}: cannot be written: {}", place, errno_text(errno)),
          "check owner and permissions, or choose another place with --queue", ErrorKind::storage);
      return;
    }
    ::unlink(probe.c_str());
    constexpr int kSyncs = 20;
    double begun = now_s();
    std::string block(4096, 'x');
    for (int i = 0; i < kSyncs; ++i) {
      write_fully(fd.value(), block, probe);
      if (::fsync(fd.value()) != 0) fail_errno(ErrorKind::storage, errno, probe);
    }
    double sync_ms = (now_s() - begun) / kSyncs * 1000;
    constexpr double kSlowSync = 50;
    add(sync_ms > kSlowSync ? Level::warning : Level::ok,
        format("a synced write takes {:.2f} ms", sync_ms),
        sync_ms > kSlowSync ? "a faster disk for the queue" : "");
  }

  void device() {
    std::unique_ptr<Device> device = open_device(options_);
    self_test(*device);
    add(Level::ok, format("{}: self-test passed", device->description()));
    gpu_ = device->pci_address();
  }

  void model() {
    if (options_.model.empty() && options_.models.empty()) {
      add(Level::note, "no model is configured",
          "batches name theirs (submit --model FILE), or give --model or [models]");
    }
    auto look = [&](const ModelRef& ref) {
      auto model = PromptModel::open(ref, options_.context_tokens);
      add(Level::ok, format("{}: can run here", ref.path));
      read_rate(ref.path);
    };
    if (!options_.model.empty()) look(chosen_model(options_));
    for (const auto& [name, entry] : options_.models)
      look(require_model(options_.models, name));
  }

  void read_rate(const std::string& path) {
    constexpr size_t kBlock = 4 << 20;
    constexpr double kMostSeconds = 0.5;
    FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    std::unique_ptr<void, decltype(&std::free)> buffer(
        std::aligned_alloc(4096, kBlock), &std::free);
    if (!fd.is_open() || buffer == nullptr) {
      add(Level::note, format("{}: no O_DIRECT on its file system", path),
          "a streamed model is read through the page cache there");
      return;
    }
    double begun = now_s();
    uint64_t n_bytes = 0;
    while (now_s() - begun < kMostSeconds) {
      ssize_t n = ::read(fd.value(), buffer.get(), kBlock);
      if (n <= 0) break;
      n_bytes += static_cast<uint64_t>(n);
    }
    if (n_bytes > 0) {
      add(Level::ok, format(
                         "{}: read at {} by one thread", path,
                         rate_text(static_cast<double>(n_bytes) / (now_s() - begun))));
    }
  }

  void windows() {
    RunWindows windows = RunWindows::parse(options_.worker.windows, "--window");
    int64_t now = std::time(nullptr);
    if (windows.is_open(now)) return;
    add(Level::note, "outside of the worker's windows; opens " + windows.next_opening(now),
        "nightsweep run-now works at once");
  }

  void locked_memory() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return;
    constexpr rlim_t kEnough = 64 << 20;
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= kEnough) {
      add(Level::ok, limit.rlim_cur == RLIM_INFINITY
                         ? std::string("no limit")
                         : format("up to {}", size_text(limit.rlim_cur)));
    } else {
      add(Level::warning, format("limited to {}", size_text(limit.rlim_cur)),
          "LimitMEMLOCK=infinity in the unit, or `ulimit -l unlimited`");
    }
  }

  void io_uring() {
    // A wrong argument is refused as such only where the call exists and is allowed.
    long code = ::syscall(SYS_io_uring_setup, 0, nullptr);
    if (code < 0 && (errno == ENOSYS || errno == EPERM)) {
      add(Level::warning, "not available here (kernel setting or container)",
          "sysctl kernel.io_uring_disabled=0; streaming falls back to slower reads");
    } else {
      add(Level::ok, "available");
    }
  }

  void driver() {
    const char* file = "/proc/driver/nvidia/version";
    if (::access(file, R_OK) != 0) {
      add(Level::note, "no NVIDIA driver is loaded", "for the CPU there is nothing to do");
      return;
    }
    std::string text = read_whole_file(file, ErrorKind::device);
    add(Level::ok, text.substr(0, text.find('\n')));
  }

  void energy() {
    EnergyMeter meter(gpu_);
    if (const std::string found = meter.description(); !found.empty()) {
      add(Level::ok, format("{} tell joules a token", found));
    }
    for (const std::string& note : meter.notes())
      add(Level::note, note, "answers and status leave out what is not measured");
  }

  void clock() {
    constexpr std::time_t kSomeDayIn2025 = 1'735'689'600;
    if (std::time(nullptr) < kSomeDayIn2025) {
      add(Level::warning, "the clock is years behind", "set it: expiry and windows go by it");
      return;
    }
    timex state{};
    int code = ::adjtimex(&state);
    bool is_synced = code >= 0 && code != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
    add(is_synced ? Level::ok : Level::note,
        is_synced ? "synchronised" : "not synchronised to a time server",
        is_synced ? "" : "enable systemd-timesyncd or chrony");
  }

  void fault() {
    const char* text = std::getenv("NIGHTSWEEP_FAULT");  // NOLINT(concurrency-mt-unsafe)
    if (text == nullptr || *text == '\0') return;
    add(Level::warning, format("NIGHTSWEEP_FAULT={} is set: a worker kills itself", text),
        "unset NIGHTSWEEP_FAULT");
  }

  const CommonOptions& options_;
  std::string name_;
  std::vector<Finding> findings_;
  uint64_t n_unanswered_ = 0;
  uint64_t unanswered_bytes_ = 0;
  std::string gpu_;  // its address; empty: none
};

}  // namespace

const char* level_name(Finding::Level level) {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::note:
      return "note";
    case Level::warning:
      return "warning";
    case Level::error:
      return "error";
  }
  return "";
}

std::vector<Finding> examine(const CommonOptions& options) {
  return Examination(options).run();
}

}  // namespace nightsweep
