// A tokenizer whose ordinary tokens are the 256 bytes, so that ids cut characters everywhere, plus the tags.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/json.h"
#include "chat/item.h"
#include "tokenizer/control_ids.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace godwit::chat {

inline std::shared_ptr<const tokenizer::Tokenizer> byte_tokenizer() {
  static const auto kTokenizer = [] {
    JsonObject vocabulary;
    uint32_t next = 256;  // the code points that stand for bytes without a printable form
    for (uint32_t byte = 0; byte < 256; ++byte) {
      bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      std::string name;
      tokenizer::append_utf8(name, printable ? byte : next++);
      vocabulary.set(name, byte);
    }
    JsonArray added;
    auto add = [&](std::string_view content, bool special) {
      added.push_back(Json::object({{"id", 256 + static_cast<int>(added.size())},
                                    {"content", content},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", special}}));
    };
    for (std::string_view text : kControlText) add(text, false);
    for (std::string_view text : {"<|endoftext|>", "<|user|>", "<|observation|>"}) add(text, true);
    Json level = Json::object(
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}});
    Json model = Json::object({{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"ignore_merges", true},
                               {"vocab", std::move(vocabulary)},
                               {"merges", JsonArray()}});
    Json document = Json::object({{"version", "1.0"},
                                  {"truncation", nullptr},
                                  {"padding", nullptr},
                                  {"added_tokens", std::move(added)},
                                  {"normalizer", nullptr},
                                  {"pre_tokenizer", level},
                                  {"post_processor", nullptr},
                                  {"decoder", level},
                                  {"model", std::move(model)}});
    auto loaded = tokenizer::Tokenizer::from_json(dump_json(document));
    if (!loaded.ok()) std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return std::move(loaded).value();
  }();
  return kTokenizer;
}

}  // namespace godwit::chat
