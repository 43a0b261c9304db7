// train_bpe OUT.json [SIZE]: trains a byte-level BPE tokenizer of the shape of api spec §1.1 (154,820 tokens
// unless SIZE says otherwise, 36 added tokens after them, ignore_merges, every two-token split of a token as
// a merge) from texts that Debian packages carry, so that size and speed can be tested without the real file.
// Same packages, same output.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "bpe_trainer.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/utf8.h"

namespace {

namespace fs = std::filesystem;
using namespace godwit;

constexpr size_t kDefaultSize = 154'820;
constexpr size_t kMaxFile = 2 << 20;
constexpr size_t kMaxWord = 64;  // longer pre-tokens teach nothing

struct Root {
  const char* path;
  const char* package;
  std::vector<std::string_view> extensions;  // empty: every file
  size_t budget;                             // bytes
};

const Root kRoots[] = {
    {"/usr/share/common-licenses", "base-files", {}, 1 << 20},
    {"/usr/share/cmake-3.25", "cmake-data", {".rst", ".cmake"}, 20 << 20},
    {"/usr/share/perl", "perl-modules", {".pm", ".pod", ".pl"}, 32 << 20},
    {"/usr/lib/python3.11", "libpython3.11-stdlib", {".py"}, 64 << 20},
    {"/usr/include/c++", "libstdc++-12-dev", {}, 14 << 20},
    {"/usr/include/linux", "linux-libc-dev", {".h"}, 8 << 20},
    {"/usr/include/boost", "libboost1.81-dev", {".hpp"}, 64 << 20},
    {"/usr/share/i18n/locales", "locales", {}, 14 << 20},
    {"/usr/share/locale", "translations", {".mo"}, 48 << 20},
};

struct Added {
  const char* content;
  bool special;
};

const Added kAdded[] = {
    {"<|endoftext|>", true},
    {"[MASK]", true},
    {"[gMASK]", true},
    {"[sMASK]", true},
    {"<sop>", true},
    {"<eop>", true},
    {"<|system|>", true},
    {"<|user|>", true},
    {"<|assistant|>", true},
    {"<|observation|>", true},
    {"<|begin_of_image|>", true},
    {"<|end_of_image|>", true},
    {"<|begin_of_video|>", true},
    {"<|end_of_video|>", true},
    {"<|begin_of_audio|>", true},
    {"<|end_of_audio|>", true},
    {"<|begin_of_transcription|>", true},
    {"<|end_of_transcription|>", true},
    {"<|code_prefix|>", false},
    {"<|code_middle|>", false},
    {"<|code_suffix|>", false},
    {"<think>", false},
    {"</think>", false},
    {"<tool_call>", false},
    {"</tool_call>", false},
    {"<tool_response>", false},
    {"</tool_response>", false},
    {"<arg_key>", false},
    {"</arg_key>", false},
    {"<arg_value>", false},
    {"</arg_value>", false},
    {"/nothink", false},
    {"<|begin_of_box|>", false},
    {"<|end_of_box|>", false},
    {"<|image|>", false},
    {"<|video|>", false},
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint32_t word_at(const std::string& bytes, size_t offset) {
  uint32_t word = 0;
  if (offset + 4 <= bytes.size()) std::copy_n(bytes.data() + offset, 4, reinterpret_cast<char*>(&word));
  return word;
}

// The translations of a GNU gettext catalogue, a line each; empty when it is not one.
std::string translations(const std::string& catalogue) {
  std::string text;
  if (word_at(catalogue, 0) != 0x950412de) return text;
  uint32_t count = word_at(catalogue, 8);
  size_t table = word_at(catalogue, 16);
  for (uint32_t i = 1; i < count && table + 8 * (i + size_t{1}) <= catalogue.size();
       ++i) {  // 0 is the header
    size_t length = word_at(catalogue, table + 8 * i);
    size_t offset = word_at(catalogue, table + 8 * i + 4);
    if (offset > catalogue.size() || length > catalogue.size() - offset) return {};
    text.append(catalogue, offset, length).push_back('\n');
  }
  std::replace(text.begin(), text.end(), '\0', '\n');
  return text;
}

std::vector<fs::path> files_of(const Root& root) {
  std::vector<fs::path> files;
  std::error_code failure;
  fs::recursive_directory_iterator walk(root.path, fs::directory_options::skip_permission_denied, failure),
      end;
  for (; !failure && walk != end; walk.increment(failure)) {
    if (!walk->is_regular_file(failure) || walk->is_symlink(failure) || walk->file_size(failure) > kMaxFile)
      continue;
    std::string extension = walk->path().extension().string();
    if (root.extensions.empty() ||
        std::find(root.extensions.begin(), root.extensions.end(), extension) != root.extensions.end())
      files.push_back(walk->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Files spread evenly over the root, so that a budget does not keep only the first letters of the alphabet.
size_t read_root(const Root& root, const tokenizer::PreTokenizer& splitter, tools::WordCounts& counts) {
  std::vector<fs::path> files = files_of(root);
  size_t total = 0;
  for (const fs::path& path : files) total += fs::file_size(path);
  size_t stride = std::max<size_t>(1, (total + root.budget - 1) / root.budget);
  size_t used = 0;
  std::vector<uint32_t> ends;
  for (size_t i = 0; i < files.size(); i += stride) {
    std::string text = read_file(files[i]);
    if (files[i].extension() == ".mo") text = translations(text);
    if (!tokenizer::is_utf8(text)) continue;
    used += text.size();
    for (size_t at = 0; at < text.size();) {
      ends.clear();
      size_t next = splitter.split(text, at, ends).value();
      for (uint32_t piece_end : ends) {
        if (piece_end - at <= kMaxWord) counts.add(std::string_view(text).substr(at, piece_end - at));
        at = piece_end;
      }
      at = next;
    }
  }
  return used;
}

void append_token(std::string& out, std::string_view bytes) {
  append_json_string(out, tokenizer::encode_byte_level(bytes));
}

// Every way to make a token of two others, tokens in order: how a rank list is written as merges.
void append_merges(std::string& out, const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id) ids.emplace(tokens[id], id);
  bool first = true;
  for (const std::string& token : tokens) {
    std::vector<std::pair<size_t, size_t>> splits;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      auto left = ids.find(std::string_view(token).substr(0, cut));
      auto right = ids.find(std::string_view(token).substr(cut));
      if (left != ids.end() && right != ids.end()) splits.emplace_back(left->second, right->second);
    }
    std::sort(splits.begin(), splits.end());
    for (auto [left, right] : splits) {
      out += first ? "[" : ",[";
      first = false;
      append_token(out, tokens[left]);
      out += ',';
      append_token(out, tokens[right]);
      out += ']';
    }
  }
}

std::string tokenizer_json(const std::vector<std::string>& tokens) {
  std::string out = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)";
  for (size_t i = 0; i < std::size(kAdded); ++i) {
    out += fmt::format(R"({}{{"id":{},"content":)", i == 0 ? "" : ",", tokens.size() + i);
    append_json_string(out, kAdded[i].content);
    out +=
        fmt::format(R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":{}}})",
                    kAdded[i].special);
  }
  out +=
      R"(],"normalizer":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)";
  append_json_string(out, tokenizer::kGlmPattern);
  out +=
      R"(},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
      R"("use_regex":false}]},"post_processor":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,)"
      R"("use_regex":true},"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)"
      R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,)"
      R"("ignore_merges":true,"vocab":{)";
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (id > 0) out += ',';
    append_token(out, tokens[id]);
    out += fmt::format(":{}", id);
  }
  out += R"(},"merges":[)";
  append_merges(out, tokens);
  return out + "]}}\n";
}

}  // namespace

int main(int argc, char** argv) {
  size_t size = argc == 3 ? static_cast<size_t>(std::strtoul(argv[2], nullptr, 10)) : kDefaultSize;
  if (argc < 2 || argc > 3 || size < 256 || size > 1'000'000) {
    fmt::print(stderr, "usage: train_bpe OUT.json [SIZE]\nSIZE is 256 to 1000000 tokens, {} when left out.\n",
               kDefaultSize);
    return 2;
  }
  auto splitter = tokenizer::make_glm_splitter();
  tools::WordCounts counts;
  for (const Root& root : kRoots) {
    size_t used = read_root(root, *splitter, counts);
    fmt::print("{:<28} {:<22} {:6.1f} MB\n", root.path, root.package, static_cast<double>(used) / 1e6);
  }
  auto words = counts.words(2);
  fmt::print("{} words that occur twice or more\n", words.size());
  std::vector<std::string> tokens = tools::train_tokens(words, size);
  if (tokens.size() < size)
    fmt::print("only {} tokens: the texts hold no more pairs that occur twice\n", tokens.size());
  std::ofstream file(argv[1], std::ios::binary);
  file << tokenizer_json(tokens);
  if (!file.flush()) {
    fmt::print(stderr, "{}: cannot be written\n", argv[1]);
    return 1;
  }
  fmt::print("{}: {} tokens and {} added ones\n", argv[1], tokens.size(), std::size(kAdded));
  return 0;
}
