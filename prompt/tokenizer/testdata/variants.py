"""Writes variants.json.gz: what Python's tokenizers 0.23.3 makes of texts with
components that the real tokenizers of the other tests do not have.

python variants.py, in this folder.
"""

import gzip
import json
import random

from tokenizers import Tokenizer

BASE = json.load(open("../../../fixtures/tokenizer/tokenizer.json", encoding="utf-8"))

# A model of characters: SentencePiece's way, with bytes for some unknown characters.
CHARS = list("▁abcdehilnorstuwé,.12日") + ["<unk>"]
MERGES = [("▁", "h"), ("h", "e"), ("l", "l"), ("▁", "▁"), ("▁h", "e"), ("ll", "o"), ("▁he", "llo"),
          ("t", "h"), ("▁", "th"), ("a", "▁"), ("o", "r"), ("▁▁", "▁▁"), ("1", "2")]


def char_model(fallback, **flags):
    vocab = {t: i for i, t in enumerate(CHARS + [f"<0x{b:02X}>" for b in fallback])}
    for a, b in MERGES:
        vocab.setdefault(a + b, len(vocab))
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": vocab, "merges": [list(m) for m in MERGES]} | flags


def byte_level(prefix=False, regex=True, trim=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "use_regex": regex, "trim_offsets": trim}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def split(pattern, behavior, invert=False, kind="Regex"):
    return sequence("pretokenizers", {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior,
                                      "invert": invert}, byte_level(regex=False))


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def added(content, id, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": False} | flags


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
BACK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
LLAMA = {"decoder": sequence("decoders", BACK, {"type": "ByteFallback"}, {"type": "Fuse"},
                             {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
         "normalizer": sequence("normalizers", PREPEND, REPLACE), "pre_tokenizer": None, "post_processor": None}
ALL = range(256)

VARIANTS = {
    "gpt2": {"normalizer": None, "pre_tokenizer": byte_level(), "post_processor": byte_level(trim=True)},
    "gpt2 prefix": {"normalizer": None, "pre_tokenizer": byte_level(True), "post_processor": byte_level(True, trim=True)},
    "trim with added tokens": {"normalizer": None, "pre_tokenizer": byte_level(True), "post_processor": byte_level(False, trim=True),
                               "added_tokens": BASE["added_tokens"] + [added("  mark ", 1005)]},
    "NFD": {"normalizer": {"type": "NFD"}},
    "NFKC": {"normalizer": {"type": "NFKC"}},
    "NFKD": {"normalizer": {"type": "NFKD"}},
    "replace by pattern": {"normalizer": sequence("normalizers", {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r" {2,}|\d"}, "content": "#é"})},
    "no normalizer": {"normalizer": sequence("normalizers")},
    "digits": {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level())},
    "digits together": {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, byte_level())},
    "normalized added": {"added_tokens": BASE["added_tokens"] + [added("CAFE\u0301", 1005, normalized=True), added("e\u0301", 1006),
                                                               added("<th", 1007), added("ing", 326, special=True, normalized=True)]},
    "ignore merges": {"model": BASE["model"] | {"ignore_merges": True}},
    "merges as strings": {"model": BASE["model"] | {"merges": ["#version: 0.2"] + [" ".join(m) for m in BASE["model"]["merges"]]}},
    "template": {"post_processor": sequence("processors", byte_level(), {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"B": {"id": "B", "ids": [1000, 5], "tokens": ["a", "b"]}, "<|im_end|>": {"id": "<|im_end|>", "ids": [1002], "tokens": ["<|im_end|>"]}}})},
    "o200k": {"pre_tokenizer": split(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+", "Isolated")},
    "cl100k possessive": {"pre_tokenizer": split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s", "Isolated")},
    "class and": {"pre_tokenizer": split(r"[\p{Han}\p{Hiragana}]+|[\p{L}&&[^\p{Han}a-f]]+|(?>\d+)(?=\s)|(?:ab|a)+x|[^\]\-\\\u00e9\x{1F680}]{2,4}", "Isolated")},
    "from the right": {"pre_tokenizer": split(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\P{N}+", "Isolated")},
    "lazy": {"pre_tokenizer": split(r"a.*?e|\S+?\s|\s*?\S", "Isolated")},
}
for behavior in ["Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"]:
    VARIANTS[f"split {behavior}"] = {"pre_tokenizer": split(r"[\s,]", behavior)}
    VARIANTS[f"split {behavior} inverted"] = {"pre_tokenizer": split(r"\p{L}+|1", behavior, True)}
    VARIANTS[f"split {behavior} text"] = {"pre_tokenizer": split("l", behavior, kind="String")}
CHAR_BASE = {"added_tokens": [added("<unk>", CHARS.index("<unk>"), special=True)]}
for name, model in {
    "llama": char_model(ALL, byte_fallback=True, fuse_unk=True),
    "unknown fused": char_model([], fuse_unk=True),
    "unknown alone": char_model([]),
    "unknown dropped": char_model([], unk_token=None),
    "some bytes": char_model([0xC3, 0xBC, 10], byte_fallback=True, fuse_unk=True),
    "whole words": char_model(ALL, byte_fallback=True, ignore_merges=True),
}.items():
    VARIANTS[name] = CHAR_BASE | LLAMA | {"model": model}
for scheme in ["always", "first", "never"]:
    for cut in [True, False]:
        VARIANTS[f"metaspace {scheme} {cut}"] = CHAR_BASE | {
            "model": char_model([], fuse_unk=True), "normalizer": None, "post_processor": None,
            "pre_tokenizer": metaspace(scheme, cut), "decoder": metaspace(scheme, cut)}

TEXTS = [
    "", " ", "  ", "hello", " hello  the hello", "Hello, world!  It's 12345 o'clock, 1,234,567.", "e\u0301 cafe\u0301 CAFE\u0301 CAF\u00c9",
    "a\u0316\u0301\u0323b \u1e9b\u0323 \u1100\u1161\u11a8\u11a8 \uac00\u11a8", "\ufb01\u00bd\u2460 \u2126 \u212b \u0344 \u0958", "\u65e5\u672c\u8a9e\u3072\u3089 \u30c6\u30b9\u30c8", "the <unk>hello <unk> the",
    "  mark  mark \n<|im_start|> x  mark ", "<think>thing</think> nothing <th", "ll, l,l ,, l1 1l11", "tabs\t\tand\r\n\r\nlines  \n ", "WE'LL they'RE it'\u017f 'S", "a\u00fc\u00fc\u00e9\u0416\u0416hello\u0416",
    "\U0001f680\U0001f468\u200d\U0001f469 \U000105c0\U00013460 \u1ac6\u0301", "abababx aabx ab-]\\ xy", "\u0661\u0662\u0663 \u00b2 \u2167 \u0be7 12 3", "nul\u0000byte", "\u00a0no\u3000break\u2028",
]


def short(model):
    """A model without what it shares with the base."""
    return {k: v for k, v in model.items() if v != BASE["model"].get(k)}


def main():
    random.seed(20261130)
    letters = [c for t in TEXTS for c in t]
    texts = TEXTS + ["".join(random.choices(letters, k=random.randrange(1, 25))) for _ in range(60)]
    out = []
    for name, patch in VARIANTS.items():
        tok = Tokenizer.from_str(json.dumps(BASE | patch))
        cases = []
        for text in texts:
            e = tok.encode(text, add_special_tokens=True)
            chars = [0]
            for c in text:
                chars.append(chars[-1] + len(c.encode()))
            cases.append({"text": text, "ids": e.ids, "spans": [[chars[a], chars[b]] for a, b in e.offsets],
                          "decoded": tok.decode(e.ids, skip_special_tokens=False)})
        out.append({"name": name, "patch": {k: short(v) if k == "model" else v for k, v in patch.items()}, "cases": cases})
    with gzip.GzipFile("variants.json.gz", "wb", mtime=0) as f:
        f.write(("\n".join(json.dumps(v) for v in out) + "\n").encode())


main()
