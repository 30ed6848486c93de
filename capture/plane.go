package capture

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/kvscope/kvscope/wire"
)

// This file redacts what is no engine's batch: messages of Dynamo's event plane,
// and load messages.

// planeMessage writes a message of the plane anew, in the form that it came in;
// it reports false where frames are no such message.
func (r *Redactor) planeMessage(frames [][]byte) ([][]byte, bool) {
	publisher, owner, ok := wire.PlaneSender(frames)
	if !ok {
		return nil, false
	}
	topic, seq, payload, err := wire.SplitFrames(frames)
	if err != nil {
		return nil, false
	}
	batch, err := wire.Decode(topic, seq, payload)
	report, isLoad, bad := wire.DecodeLoad(frames)
	e := encoder{r: r}
	name := wire.PlaneEvents
	switch {
	case isLoad && bad == nil:
		name = wire.PlaneLoad
		e.activeLoad(owner, &report)
	case err == nil:
		e.planeEvents(owner, &batch)
	default:
		return r.oddMessage(), true
	}
	r.count.Payloads++
	const entries, milli = 5, 1e6
	env := msgp.AppendMapHeader(nil, entries)
	env = msgp.AppendUint64(msgp.AppendString(env, "publisher_id"), publisher)
	env = msgp.AppendUint64(msgp.AppendString(env, "sequence"), seq)
	env = msgp.AppendUint64(msgp.AppendString(env, "published_at"), uint64(batch.Engine/milli))
	env = msgp.AppendString(msgp.AppendString(env, "topic"), name)
	env = msgp.AppendBytes(msgp.AppendString(env, "payload"), e.b)
	if len(frames) == 2 {
		return [][]byte{[]byte(r.subject(topic)), env}, true
	}
	frame := binary.BigEndian.AppendUint32([]byte{1}, uint32(len(env)))
	return [][]byte{[]byte(r.topic(topic)), frames[1], frames[2], append(frame, env...)}, true
}

// subject keeps the plane's own words of a NATS subject.
func (r *Redactor) subject(subject string) string {
	parts := strings.Split(subject, ".")
	for i, part := range parts {
		switch part {
		case "namespace", "component", "endpoint", wire.PlaneEvents, wire.PlaneLoad:
		default:
			parts[i] = r.name(part)
		}
	}
	return strings.Join(parts, ".")
}

// worker replaces a worker's number, in messages and in names of replicas alike.
func (r *Redactor) worker(id uint64) uint64 {
	if r.opt.KeepNames {
		return id
	}
	return r.secret.number(workerDomain, id)
}

// ownerOf reads a replica's name of the plane; 0 where it is another.
func (r *Redactor) ownerOf(name wire.Replica) (worker uint64, rank int) {
	w, n, _ := strings.Cut(string(name), "/")
	worker, _ = strconv.ParseUint(w, 10, 64)
	rank, _ = strconv.Atoi(n)
	return r.worker(worker), rank
}

func (e *encoder) activeLoad(owner wire.Replica, report *wire.LoadReport) {
	const entries = 3
	worker, rank := e.r.ownerOf(owner)
	e.b = msgp.AppendMapHeader(e.b, entries)
	e.b = msgp.AppendUint64(msgp.AppendString(e.b, "worker_id"), worker)
	e.b = msgp.AppendInt(msgp.AppendString(e.b, "dp_rank"), rank)
	e.b = msgp.AppendString(e.b, "kv_used_blocks")
	if report.UsedBlocks < 0 {
		e.b = msgp.AppendNil(e.b)
		return
	}
	e.b = msgp.AppendUint64(e.b, uint64(report.UsedBlocks))
}

func (e *encoder) planeEvents(owner wire.Replica, batch *wire.Batch) {
	worker, rank := e.r.ownerOf(owner)
	e.b = msgp.AppendArrayHeader(e.b, uint32(len(batch.Events)))
	for i := range batch.Events {
		e.r.count.Fields += uint64(batch.Events[i].UnknownFields)
		e.planeEvent(&batch.Events[i], worker, rank)
	}
}

// planeEvent writes one event. An unreadable one becomes nil, which is no event
// either.
func (e *encoder) planeEvent(v *wire.Event, worker uint64, rank int) {
	if v.Kind == wire.Bad {
		e.r.count.Events++
		e.b = msgp.AppendNil(e.b)
		return
	}
	optional := []struct{ field, key string }{
		{"medium", "storage_tier"}, {"ownership", "residency_domain"}, {"session_id", "session_id"},
	}
	n := uint32(2)
	for _, f := range optional {
		if v.Fields.Has(f.field) {
			n++
		}
	}
	e.b = msgp.AppendMapHeader(e.b, n)
	e.b = msgp.AppendUint64(msgp.AppendString(e.b, "worker_id"), worker)
	for _, f := range optional {
		if v.Fields.Has(f.field) {
			e.b = msgp.AppendString(e.b, f.key)
			e.field(v, f.field)
		}
	}
	e.b = msgp.AppendMapHeader(msgp.AppendString(e.b, "event"), 2)
	e.b = msgp.AppendInt(msgp.AppendString(e.b, "dp_rank"), rank)
	e.b = msgp.AppendString(e.b, "data")
	switch v.Kind {
	case wire.Cleared:
		e.b = msgp.AppendString(e.b, v.Name)
	case wire.Removed:
		e.b = msgp.AppendMapHeader(msgp.AppendString(msgp.AppendMapHeader(e.b, 1), v.Name), 1)
		e.b = msgp.AppendString(e.b, "block_hashes")
		e.hashes(v)
	case wire.Stored:
		e.planeBlocks(v)
	default:
		e.r.count.Events++
		e.b = msgp.AppendString(e.b, redacted)
	}
}

func (e *encoder) planeBlocks(v *wire.Event) {
	n := uint32(1)
	if v.Fields.Has("parent_block_hash") {
		n++
	}
	e.b = msgp.AppendMapHeader(msgp.AppendString(msgp.AppendMapHeader(e.b, 1), v.Name), n)
	if n > 1 {
		e.b = msgp.AppendString(e.b, "parent_hash")
		e.hash(v, v.Parent)
	}
	e.b = msgp.AppendArrayHeader(msgp.AppendString(e.b, "blocks"), uint32(len(v.Hashes)))
	for i, h := range v.Hashes {
		e.b = msgp.AppendString(msgp.AppendMapHeader(e.b, 2), "block_hash")
		e.hash(v, h)
		e.b = msgp.AppendUint64(msgp.AppendString(e.b, "tokens_hash"), e.r.secret.number(localDomain, v.Locals[i]))
	}
}

// loadStat copies SGLang's load message up to its first element that is no
// number: a word and numbers say nothing of any prompt.
func (r *Redactor) loadStat(frames [][]byte) [][]byte {
	n, b, err := msgp.ReadArrayHeaderBytes(frames[2])
	if err == nil {
		b, err = msgp.Skip(b)
	}
	var numbers []uint64
	for at := uint32(1); at < n && err == nil; at++ {
		var v uint64
		if v, b, err = msgp.ReadUint64Bytes(b); err == nil {
			numbers = append(numbers, v)
		}
	}
	r.count.Payloads++
	out := msgp.AppendString(msgp.AppendArrayHeader(nil, uint32(1+len(numbers))), "LoadStat")
	for _, v := range numbers {
		out = msgp.AppendUint64(out, v)
	}
	return [][]byte{frames[0], frames[1], out}
}
