// Package wire is kvscope's vocabulary and its bytes: what a replica, a
// record, a batch and an event are, and how the bytes of every engine dialect
// become them. It is a pure leaf: no network, no files, no clock.
//
// A message goes through SplitFrames (live) or SplitReply (replayed) to
// Decode; DecodeLoad reads those that say how busy a replica is. Messages of
// Dynamo's event plane, on ZMQ or NATS, go the same way. DialectSet says what
// the stream looks like, and DynamoRelay what Dynamo makes of the same bytes.
// JSONL reads recordings, AppendJSONL writes them, and Merge joins several into
// one Source.
//
// Values are plain data and safe to share between goroutines once built;
// decoders and sources are not safe for concurrent use.
package wire
