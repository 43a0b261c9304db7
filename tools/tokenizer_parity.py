#!/usr/bin/env python3
"""Compares godwit's tokenizer with the Hugging Face `tokenizers` package (pip install tokenizers==0.23.3).

Usage: tokenizer_parity.py --tool build/tools/tokenizer_tool [--seed N] [--scale X] TOKENIZER.json...

Corpus: every code point alone, between letters, after a space, among digits and after an apostrophe; random mixes of
scripts, marks, joiners, digits, white space, CR/LF and contractions; added tokens and pieces of them inside text; long
runs; malformed UTF-8 (compared with Python's "replace" decoding, which follows the same rule). Ids must be equal, and
so must the text that random ids decode to. Exit code 1 and the first differences otherwise.
"""
import argparse
import base64
import random
import struct
import subprocess
import sys

import tokenizers

SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\n\n", "\x0b", "\x0c", "\x85", "\u00a0", "\u1680", "\u2003", "\u2028",
          "\u2029", "\u202f", "\u3000", "\u200b", "\u180e", "\ufeff"]
JOINERS = ["\u200c", "\u200d", "\u0301", "\u0308", "\ufe0f", "\u20e3", "\u0e31", "\u094d", "\U0001f3fd", "\u2060"]
WORDS = ["the", "The", "HELLO", "don't", "I'LL", "they've", "we're", "it's", "I'm", "he'd", "'\u017f", "'S", "'ſt", "naïve",
         "Straße", "привет", "мир", "你好世界", "東京都", "한국어", "مرحبا", "שלום", "नमस्ते", "ไทย", "ελληνικά", "İstanbul", "ǅ", "ʰ", "ª"]
DIGITS = ["0", "7", "12", "123", "1234", "98765432", "½", "²", "٣", "Ⅷ", "৪", "〇", "𝟘", "①"]
SIGNS = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "==", "->", "//", "/*", "*/", "“", "”", "—", "…", "€", "→", "😀",
                                                         "👩‍👩‍👧‍👦", "🇩🇪", "()\n", "};\n\n", "''", "'"]


def every_code_point(step):
    """Packed a few hundred to a string: a newline ends every pre-token before it. Planes without letters are sampled
    with `step`, the others are complete."""
    line = ""
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000 or (code >= 0x40000 and code >> 16 != 14 and code % step):
            continue
        c = chr(code)
        line += f"{c}\na{c}b {c}1{c}2'{c}s {c}{c}\n"
        if len(line) > 4096:
            yield line
            line = ""
    yield line


def random_character(rng):
    plane = rng.choice([0, 0, 0, 0, 1, 1, 2, 3, 14, 15, 16])
    while True:
        code = plane * 0x10000 + rng.randrange(0x10000)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_text(rng, contents):
    pools = [SPACES, JOINERS, WORDS, DIGITS, SIGNS, SIGNS, SPACES, WORDS]
    parts = []
    for _ in range(rng.randrange(1, 24)):
        kind = rng.random()
        if kind < 0.75:
            parts.append(rng.choice(rng.choice(pools)))
        elif kind < 0.85:
            parts.append(random_character(rng))
        elif kind < 0.93:
            parts.append(rng.choice(contents))
        else:
            content = rng.choice(contents)
            cut = rng.randrange(len(content) + 1)
            parts.append(content[:cut] if rng.random() < 0.5 else content[cut:])
    return "".join(parts)


def long_runs(rng, size):
    for unit in ["=", "a", " ", "\n", "-", "1", "あ", "ab", "\u0301", "😀", " \n", "abc ", "aA", "'s"]:
        yield unit * (size // len(unit.encode()))
    yield base64.b64encode(rng.randbytes(size * 3 // 4)).decode()
    yield "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(size))
    yield "".join(random_character(rng) for _ in range(size // 4))


def corpus(rng, contents, scale):
    texts = [c.encode() for c in contents]
    texts += [line.encode() for line in every_code_point(1 if scale >= 1 else 64)]
    if scale >= 1:
        texts += [chr(code).encode() for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts += [random_text(rng, contents).encode() for _ in range(int(100_000 * scale))]
    texts += [text.encode() for text in long_runs(rng, int(100_000 * scale))]
    for _ in range(int(20_000 * scale)):  # malformed
        whole = random_text(rng, contents).encode()
        broken = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(broken) + 1)
            if rng.random() < 0.5:
                broken[at:at] = bytes([rng.choice([0x80, 0xBF, 0xC0, 0xE2, 0xED, 0xA0, 0xF0, 0xF4, 0x90, 0xFF, 0xE0])])
            else:
                del broken[at:at + 1]
        texts.append(bytes(broken))
    return texts


def exchange(command, items, width):
    payload = b"".join(struct.pack("<I", len(item) // width) + item for item in items)
    return subprocess.run(command, input=payload, stdout=subprocess.PIPE, check=True).stdout


def read_items(data, width):
    at = 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at)[0] * width
        yield data[at + 4:at + 4 + size]
        at += 4 + size


def compare_encoding(tool, path, reference, texts):
    ours = list(read_items(exchange([tool, path, "encode"], texts, 1), 4))
    assert len(ours) == len(texts), (len(ours), len(texts))
    theirs = (e.ids for i in range(0, len(texts), 4096)
              for e in reference.encode_batch_fast([t.decode("utf-8", "replace") for t in texts[i:i + 4096]],
                                                   add_special_tokens=False))
    wrong = 0
    for text, mine, ids in zip(texts, ours, theirs):
        mine = list(struct.unpack(f"<{len(mine) // 4}i", mine))
        if mine != ids:
            wrong += 1
            if wrong <= 5:
                at = next((i for i, (a, b) in enumerate(zip(mine, ids)) if a != b), min(len(mine), len(ids)))
                print(f"  {text[:80]!r}: id {at} differs: {mine[at:at + 6]} != {ids[at:at + 6]}")
    return wrong


def compare_decoding(tool, path, reference, rng, count):
    size = reference.get_vocab_size(with_added_tokens=True)
    lists = [[rng.randrange(size) for _ in range(rng.randrange(1, 40))] for _ in range(count)]
    packed = [struct.pack(f"<{len(ids)}i", *ids) for ids in lists]
    ours = [text.decode() for text in read_items(exchange([tool, path, "decode"], packed, 4), 1)]
    theirs = reference.decode_batch(lists, skip_special_tokens=False)
    wrong = [i for i in range(count) if ours[i] != theirs[i]]
    for i in wrong[:5]:
        print(f"  ids {lists[i][:20]}: {ours[i][:60]!r} != {theirs[i][:60]!r}")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the random parts; below 1 planes 4-13, 15 and 16 are sampled")
    parser.add_argument("tokenizers", nargs="+")
    args = parser.parse_args()
    failed = 0
    for path in args.tokenizers:
        rng = random.Random(args.seed)
        reference = tokenizers.Tokenizer.from_file(path)
        contents = [t.content for t in reference.get_added_tokens_decoder().values()] + ["<", "[", "/"]
        texts = corpus(rng, contents, args.scale)
        decoded = int(20_000 * args.scale)
        wrong = compare_encoding(args.tool, path, reference, texts)
        wrong_decoded = compare_decoding(args.tool, path, reference, rng, decoded)
        print(f"{path}: {len(texts)} texts of {sum(map(len, texts)) / 1e6:.1f} MB, {wrong} encoded differently; "
              f"{decoded} id lists, {wrong_decoded} decoded differently (tokenizers {tokenizers.__version__})")
        failed += wrong + wrong_decoded
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
