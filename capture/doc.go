// Package capture writes and reads recordings of a fleet in one file: every
// message, link event and metrics page exactly as it was received.
//
// The file is a row of zstd frames that plain zstd -d unpacks, with a seek
// table at its end; inside are msgpack records. docs/capture-format.md draws
// them. [Writer] appends and [Reader] is a wire.Source that also seeks by time.
// A file whose writer was killed opens too: all whole records are read and a
// [DamagedError] says where it ends. [Import] and [Export] convert from and to
// JSON Lines, [Cut] takes a part out, and [Redact] makes a copy that holds no
// prompt.
//
// There is no clock in here: times come with the records, and the caller's
// ticker calls Flush or Tick. Files are untrusted: sizes are bounded, and
// nothing is yielded whose checksum does not match. Writers and Readers are
// not safe for concurrent use.
package capture
