#include "engine/step_dump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "weights/mapped_file.h"

namespace godwit::engine {
namespace {

constexpr int64_t kVersion = 4;

template <class T>
Json numbers(const std::vector<T>& values) {
  JsonArray out;
  out.reserve(values.size());
  for (const T v : values) {
    if constexpr (std::is_floating_point_v<T>) {
      out.emplace_back(static_cast<double>(v));
    } else {
      out.emplace_back(static_cast<int64_t>(v));
    }
  }
  return Json(std::move(out));
}

// The fields of a record once, for both directions: `visit(name, value)`.
template <class Visit, class P>
void visit_sequence(Visit&& visit, P& p) {
  visit("first", p.rows.first);
  visit("row", p.rows.row);
  visit("rows", p.rows.rows);
  visit("slot", p.rows.slot);
  visit("page_offset", p.rows.page_offset);
  visit("replay", p.rows.replay);
  visit("pages", p.pages);
  visit("sampled_rows", p.sampled_rows);
}
template <class Visit, class S>
void visit_sample(Visit&& visit, S& s) {
  visit("position", s.position);
  visit("prompt_index", s.prompt_index);
  visit("choice_index", s.choice_index);
  visit("temperature", s.temperature);
  visit("top_p", s.top_p);
  visit("min_p", s.min_p);
  visit("top_k", s.top_k);
  visit("repetition_penalty", s.repetition_penalty);
  visit("presence_penalty", s.presence_penalty);
  visit("frequency_penalty", s.frequency_penalty);
  visit("slot", s.slot);
  visit("history", s.history);
  visit("bias_offset", s.bias_offset);
  visit("bias_count", s.bias_count);
  visit("scored", s.scored);
  visit("mask", s.mask);
  visit("top_logprobs", s.top_logprobs);
  visit("stop_suppressed", s.stop_suppressed);
}
template <class Visit, class S>
void visit_sizes(Visit&& visit, S& s) {
  visit("context", s.context);
  visit("max_sequences", s.max_sequences);
  visit("max_waiting", s.max_waiting);
  visit("prefill_tokens", s.prefill_tokens);
  visit("cache_tokens", s.cache_tokens);
}

template <class Visit, class M>
void visit_move(Visit&& visit, M& m) {
  visit("from", m.from);
  visit("to", m.to);
  visit("slot", m.slot);
}
template <class Visit, class C>
void visit_command(Visit&& visit, C& c) {
  visit("slot", c.slot);
  visit("snapshot", c.snapshot);
  visit("position", c.position);
}
template <class Visit, class R>
void visit_record(Visit&& visit, R& r) {
  visit("step", r.step);
  visit("planned_ns", r.planned_ns);
  visit("took_ns", r.took_ns);
  visit("decode_sequences", r.decode_sequences);
  visit("all_moves", r.all_moves);
}

struct Writer {
  JsonObject out;
  template <class T>
  void operator()(std::string_view name, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      out.set(name, static_cast<double>(value));
    } else {
      out.set(name, static_cast<int64_t>(value));
    }
  }
};

Json to_json(const std::vector<schedule::PlanSequence>& sequences) {
  JsonArray out;
  for (const schedule::PlanSequence& p : sequences) {
    Writer w;
    visit_sequence(w, p);
    w.out.set("request", static_cast<int64_t>(p.request));
    w.out.set("kind", static_cast<int64_t>(p.rows.kind));
    out.emplace_back(std::move(w.out));
  }
  return Json(std::move(out));
}

Json to_json(const std::vector<cache::Move>& moves) {
  JsonArray out;
  for (const cache::Move& m : moves) {
    Writer w;
    visit_move(w, m);
    w.out.set("what", static_cast<int64_t>(m.what));
    w.out.set("way", static_cast<int64_t>(m.way));
    out.emplace_back(std::move(w.out));
  }
  return Json(std::move(out));
}

Json to_json(const std::vector<schedule::SnapshotCommand>& commands) {
  JsonArray out;
  for (const schedule::SnapshotCommand& c : commands) {
    Writer w;
    visit_command(w, c);
    out.emplace_back(std::move(w.out));
  }
  return Json(std::move(out));
}

Json to_json(const StepRecord& record) {
  Writer w;
  visit_record(w, record);
  w.out.set("sequences", to_json(record.sequences));
  w.out.set("moves", to_json(record.moves));
  w.out.set("restores", to_json(record.restores));
  w.out.set("saves", to_json(record.saves));
  return Json(std::move(w.out));
}

Json to_json(const StepDump& dump) {
  JsonArray samples, tokens, steps, masks;
  for (const MaskRuns& m : dump.masks) masks.push_back(numbers(m));
  for (const StepRecord& r : dump.steps) steps.push_back(to_json(r));
  for (const sample::SamplingRow& s : dump.plan.samples) {
    Writer w;
    visit_sample(w, s);
    w.out.set("seed", std::to_string(s.seed));  // all 64 bits
    samples.emplace_back(std::move(w.out));
  }
  for (const StepDump::Sequence& s : dump.sequences)
    tokens.push_back(Json::object({{"request", static_cast<int64_t>(s.number)},
                                   {"request_id", s.request_id},
                                   {"prompt_tokens", s.prompt_tokens},
                                   {"tokens", numbers(s.tokens)}}));
  Writer sizes;
  visit_sizes(sizes, dump.sizes);
  return Json::object({{"godwit_step_dump", kVersion},
                       {"build", dump.build},
                       {"model", dump.model},
                       {"reason", dump.reason},
                       {"sizes", std::move(sizes.out)},
                       {"kv", kernels::cache_format_name(dump.kv)},
                       {"step", static_cast<int64_t>(dump.plan.step)},
                       {"decode_sequences", static_cast<int64_t>(dump.plan.decode_sequences)},
                       {"sequences", to_json(dump.plan.sequences)},
                       {"ids", numbers(dump.plan.ids)},
                       {"pages", numbers(dump.plan.pages)},
                       {"samples", std::move(samples)},
                       {"vocabulary", numbers(dump.vocabulary)},
                       {"masks", std::move(masks)},
                       {"bias_ids", numbers(dump.plan.bias_ids)},
                       {"bias_values", numbers(dump.plan.bias_values)},
                       {"requests", std::move(tokens)},
                       {"steps", std::move(steps)}});
}

// Reads members of one object; the first that is missing or no number is kept as the failure.
class Reader {
 public:
  Reader(const Json& json, std::string& failed) : json_(json), failed_(failed) {}

  template <class T>
  void operator()(std::string_view name, T& value) {
    if (const Json* found = json_.find(name); !found || !number(*found, value)) fail(name);
  }
  void text(std::string_view name, std::string& value) {
    const Json* found = json_.find(name);
    if (!found || !found->is_string()) return fail(name);
    value = found->as_string();
  }
  const JsonArray& array(std::string_view name) {
    static const JsonArray empty;
    const Json* found = json_.find(name);
    if (found && found->is_array()) return found->as_array();
    fail(name);
    return empty;
  }
  template <class T>
  void numbers(std::string_view name, std::vector<T>& out) {
    if (const Json* found = json_.find(name)) {
      elements(*found, name, out);
    } else {
      fail(name);
    }
  }
  // Of an array that is the member `name` or an element of it.
  template <class T>
  void elements(const Json& array, std::string_view name, std::vector<T>& out) {
    if (!array.is_array()) return fail(name);
    for (const Json& v : array.as_array()) {
      if (!number(v, out.emplace_back())) return fail(name);
    }
  }
  void fail(std::string_view name) {
    if (failed_.empty()) failed_ = name;
  }

 private:
  template <class T>
  static bool number(const Json& json, T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (!json.is_number()) return false;
      value = static_cast<T>(json.as_double());
    } else {
      if (!json.is_integer() || !std::in_range<T>(json.as_integer())) return false;
      value = static_cast<T>(json.as_integer());
    }
    return true;
  }

  const Json& json_;
  std::string& failed_;
};

// A member that is one of the first `count` values of an enum.
template <class E>
void read_enum(Reader& fields, std::string_view name, int32_t count, E& out) {
  int32_t value = -1;
  fields(name, value);
  if (value < 0 || value >= count) return fields.fail(name);
  out = static_cast<E>(value);
}

void read_sequences(Reader& read, std::string& failed, std::vector<schedule::PlanSequence>& out) {
  for (const Json& item : read.array("sequences")) {
    schedule::PlanSequence& p = out.emplace_back();
    Reader fields(item, failed);
    visit_sequence(fields, p);
    fields("request", p.request);
    read_enum(fields, "kind", static_cast<int32_t>(kernels::RowKind::prefill) + 1, p.rows.kind);
  }
}

void read_commands(Reader& read, std::string& failed, std::string_view name,
                   std::vector<schedule::SnapshotCommand>& out) {
  for (const Json& item : read.array(name)) visit_command(Reader(item, failed), out.emplace_back());
}

void read_records(Reader& read, std::string& failed, std::vector<StepRecord>& out) {
  for (const Json& item : read.array("steps")) {
    StepRecord& r = out.emplace_back();
    Reader fields(item, failed);
    visit_record(fields, r);
    read_sequences(fields, failed, r.sequences);
    for (const Json& moved : fields.array("moves")) {
      cache::Move& m = r.moves.emplace_back();
      Reader of_move(moved, failed);
      visit_move(of_move, m);
      read_enum(of_move, "what", 3, m.what);
      read_enum(of_move, "way", 2, m.way);
    }
    read_commands(fields, failed, "restores", r.restores);
    read_commands(fields, failed, "saves", r.saves);
  }
}

}  // namespace

Result<std::filesystem::path> write_step_dump(const std::filesystem::path& directory, const StepDump& dump) {
  const std::filesystem::path path =
      directory / fmt::format("godwit-step-{}-{}.json", getpid(), dump.plan.step);
  const std::string text = dump_json(to_json(dump), JsonStyle::compact());
  // A name that exists is not ours: in a directory that others write to it could be a trap.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  const auto failed = [&] {
    return make_error(ErrorCode::internal, "--dump-dir", "{}: {}", path.string(), std::strerror(errno));
  };
  if (fd < 0) return failed();
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t written = ::write(fd, text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      Error error = failed();
      ::close(fd);
      ::unlink(path.c_str());  // half a dump helps nobody, least of all on a full disk
      return error;
    }
    at += static_cast<size_t>(written);
  }
  ::close(fd);
  return path;
}

Result<StepDump> read_step_dump(const std::filesystem::path& path) {
  GODWIT_ASSIGN(const MappedFile file, MappedFile::open(path));
  const auto refuse = [&](std::string_view what) {
    return make_error(ErrorCode::data_refused, path.filename(), "{}: {}", path.string(), what);
  };
  const Result<Json> json = parse_json(file.text(), {.depth = 8, .values = 50'000'000});
  if (!json.ok()) return refuse(json.error().message);
  std::string failed;
  Reader read(*json, failed);
  int64_t version = 0;
  read("godwit_step_dump", version);
  if (version != kVersion) return refuse("is no step dump of this version");
  StepDump out;
  read.text("build", out.build);
  read.text("model", out.model);
  read.text("reason", out.reason);
  if (const Json* sizes = json->find("sizes")) {
    visit_sizes(Reader(*sizes, failed), out.sizes);
  } else {
    read.fail("sizes");
  }
  std::string kv;
  read.text("kv", kv);
  if (const auto format = kernels::cache_format_of(kv)) {
    out.kv = *format;
  } else {
    read.fail("kv");
  }
  read("step", out.plan.step);
  read("decode_sequences", out.plan.decode_sequences);
  read_sequences(read, failed, out.plan.sequences);
  read_records(read, failed, out.steps);
  for (const Json& item : read.array("samples")) {
    sample::SamplingRow s;
    Reader fields(item, failed);
    visit_sample(fields, s);
    std::string seed;
    fields.text("seed", seed);
    s.seed = std::strtoull(seed.c_str(), nullptr, 10);
    out.plan.samples.push_back(s);
  }
  read.numbers("vocabulary", out.vocabulary);
  for (const Json& item : read.array("masks")) read.elements(item, "masks", out.masks.emplace_back());
  read.numbers("ids", out.plan.ids);
  read.numbers("pages", out.plan.pages);
  read.numbers("bias_ids", out.plan.bias_ids);
  read.numbers("bias_values", out.plan.bias_values);
  for (const Json& item : read.array("requests")) {
    StepDump::Sequence s;
    Reader fields(item, failed);
    fields("request", s.number);
    fields.text("request_id", s.request_id);
    fields("prompt_tokens", s.prompt_tokens);
    fields.numbers("tokens", s.tokens);
    out.sequences.push_back(std::move(s));
  }
  if (!failed.empty()) return refuse(fmt::format("field {} is missing or wrong", failed));
  return out;
}

}  // namespace godwit::engine
