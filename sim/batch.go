package sim

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// AppendBatch appends the payload of a batch as vLLM 0.26 to 0.32 encodes it:
// [time, events, rank], with the events as maps. Events that are Bad or Unknown
// go out as their Raw bytes.
func AppendBatch(dst []byte, at wire.Time, events []wire.Event, rank int) []byte {
	dst = msgp.AppendArrayHeader(dst, 3)
	dst = msgp.AppendFloat64(dst, at.Seconds())
	dst = msgp.AppendArrayHeader(dst, uint32(len(events)))
	for i := range events {
		dst = appendEvent(dst, &events[i])
	}
	return msgp.AppendInt(dst, rank)
}

func appendEvent(dst []byte, e *wire.Event) []byte {
	switch e.Kind {
	case wire.Stored:
		return appendStored(dst, e)
	case wire.Removed:
		dst = msgp.AppendMapHeader(dst, 4)
		dst = appendTag(dst, "BlockRemoved")
		dst = appendHashes(dst, e.Hashes)
		dst = appendText(dst, "medium", e.Medium)
		return msgp.AppendInt(msgp.AppendString(dst, "group_idx"), 0)
	case wire.Cleared:
		return appendTag(msgp.AppendMapHeader(dst, 1), "AllBlocksCleared")
	}
	return append(dst, e.Raw...)
}

// appendStored has the fields that vLLM sends, but for the number of an adapter.
func appendStored(dst []byte, e *wire.Event) []byte {
	dst = msgp.AppendMapHeader(dst, 11)
	dst = appendTag(dst, "BlockStored")
	dst = appendHashes(dst, e.Hashes)
	dst = msgp.AppendString(dst, "parent_block_hash")
	if e.Parent.Set {
		dst = msgp.AppendUint64(dst, e.Parent.N)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "token_ids"), uint32(len(e.Tokens)))
	for _, t := range e.Tokens {
		dst = msgp.AppendUint64(dst, uint64(t))
	}
	dst = msgp.AppendInt(msgp.AppendString(dst, "block_size"), e.BlockSize)
	dst = msgp.AppendNil(msgp.AppendString(dst, "lora_id"))
	dst = appendText(dst, "medium", e.Medium)
	dst = msgp.AppendString(dst, "lora_name")
	if e.LoRAName != "" {
		dst = msgp.AppendString(dst, e.LoRAName)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "extra_keys"), uint32(len(e.Extra)))
	for _, keys := range e.Extra {
		if keys == nil {
			dst = msgp.AppendNil(dst)
			continue
		}
		dst = msgp.AppendArrayHeader(dst, uint32(len(keys)))
		for _, k := range keys {
			dst = msgp.AppendString(dst, k.Text)
		}
	}
	dst = msgp.AppendInt(msgp.AppendString(dst, "group_idx"), 0)
	return appendText(dst, "kv_cache_spec_kind", e.Spec)
}

func appendTag(dst []byte, tag string) []byte { return appendText(dst, "type", tag) }

func appendText(dst []byte, key, value string) []byte {
	return msgp.AppendString(msgp.AppendString(dst, key), value)
}

func appendHashes(dst []byte, hashes []wire.Handle) []byte {
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "block_hashes"), uint32(len(hashes)))
	for _, h := range hashes {
		dst = msgp.AppendUint64(dst, h.N)
	}
	return dst
}
