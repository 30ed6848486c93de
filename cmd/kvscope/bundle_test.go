package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/sim"
	"github.com/kvscope/kvscope/wire"
)

// The marks of what no bundle may hold.
const (
	markPrompt, markSalt, markPod = "QZPROMPTxk41", "QZSALTw9j27", "qzpod-v83k"
	markToken                     = 1987654321
	markHash                      = 0xd1e5a7c3b9f04286
)

// textForms are a text in every encoding that comes to mind.
func textForms(s string) [][]byte {
	forms := [][]byte{[]byte(s), []byte(strings.ToLower(s)), []byte(strings.ToUpper(s))}
	var le, be []byte
	for _, u := range utf16.Encode([]rune(s)) {
		le, be = binary.LittleEndian.AppendUint16(le, u), binary.BigEndian.AppendUint16(be, u)
	}
	return append(append(forms, le, be), coded([]byte(s))...)
}

// coded are bytes as hexadecimal and base64 text, at every alignment.
func coded(b []byte) [][]byte {
	lower := hex.EncodeToString(b)
	forms := [][]byte{[]byte(lower), []byte(strings.ToUpper(lower))}
	for shift := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := enc.EncodeToString(append(make([]byte, shift), b...))
			// What the bytes before and behind decide is left out.
			text = text[(shift*8+5)/6 : (shift+len(b))*8/6]
			forms = append(forms, []byte(text))
		}
	}
	return forms
}

func numberForms(n uint64, four bool) [][]byte {
	decimal := fmt.Sprint(n)
	var spaced string
	for i, c := range decimal {
		if i > 0 && (len(decimal)-i)%3 == 0 {
			spaced += " "
		}
		spaced += string(c)
	}
	forms := [][]byte{
		[]byte(decimal), []byte(spaced), []byte(strings.ReplaceAll(spaced, " ", ",")),
		binary.BigEndian.AppendUint64(nil, n), binary.LittleEndian.AppendUint64(nil, n), binary.AppendUvarint(nil, n),
		binary.BigEndian.AppendUint64(nil, math.Float64bits(float64(n))), binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(n))),
	}
	if four {
		b4, l4 := binary.BigEndian.AppendUint32(nil, uint32(n)), binary.LittleEndian.AppendUint32(nil, uint32(n))
		forms = append(append(forms, b4, l4), append(coded(b4)[:2], coded(l4)[:2]...)...)
		return append(forms, coded(slices.Concat(b4, b4))...)
	}
	return append(forms, coded(binary.BigEndian.AppendUint64(nil, n))...)
}

// marks are all forms of all of them.
func marks() map[string][][]byte {
	return map[string][][]byte{
		"prompt": textForms(markPrompt), "salt": textForms(markSalt), "pod": textForms(markPod),
		"token": numberForms(markToken, true), "hash": numberForms(markHash, false),
	}
}

// found names the marks that occur in any of the texts.
func found(views map[string][]byte) map[string]string {
	out := map[string]string{}
	for mark, forms := range marks() {
		for _, form := range forms {
			for view, b := range views {
				if len(form) >= 4 && bytes.Contains(b, form) {
					out[mark] = fmt.Sprintf("%q in %s", form, view)
				}
			}
		}
	}
	return out
}

// marked is a recording that holds every mark wherever something foreign can stand.
func marked(t *testing.T, path string) {
	t.Helper()
	type dict = map[string]any
	pack := func(v any) []byte {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	tokens := slices.Repeat([]any{uint64(markToken)}, 32)
	stored := dict{
		"type": "BlockStored", "block_hashes": []any{uint64(markHash), uint64(77)}, "parent_block_hash": nil, "token_ids": tokens, "block_size": 16,
		"lora_name": markPrompt, "extra_keys": []any{[]any{markSalt, []any{"cache_salt", markSalt}}, nil}, "cache_salt": markSalt,
		"session_id": markPrompt, "medium": markPrompt, "prompt": markPrompt, "kv_cache_spec_kind": markPrompt, "locality": markPrompt,
	}
	digest := []byte(markPrompt + "0123456789abcdefghij")[:32]
	events := [][]any{
		{stored},
		{[]any{"BlockStored", []any{digest}, uint64(markHash), tokens[:16], 16, nil, "GPU", markPrompt, []any{[]any{markSalt}}}},
		{dict{"type": markPrompt, "text": markPrompt}},
		{dict{"type": "BlockStored", "block_hashes": markPrompt}},
		{[]any{markPrompt, tokens}},
		{dict{"type": "BlockRemoved", "block_hashes": []any{uint64(markHash)}, "medium": markSalt}},
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	line := func(fields dict) {
		fields["t"] = 1796011690.5 + float64(out.Len())/1e4
		if fields["replica"] == nil {
			fields["replica"] = markPod
		}
		if err := enc.Encode(fields); err != nil {
			t.Fatal(err)
		}
	}
	b64 := base64.StdEncoding.EncodeToString
	seq := func(n int) string { return b64(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	line(dict{"monitor": "EVENT_CONNECTED", "value": 19})
	for i, e := range events {
		line(dict{"frames": []string{b64([]byte("kv@" + markPod + "@model")), seq(i), b64(pack([]any{1.5, e, 0}))}})
	}
	line(dict{"frames": []string{b64([]byte(markPrompt)), seq(9), b64([]byte("\xc1" + markPrompt))}})
	line(dict{"frames": []string{b64([]byte(markPrompt))}})
	line(dict{"replica": "other", "frames": []string{"", seq(0), b64(pack([]any{1.5, []any{stored}}))}})
	line(dict{"replica": markPrompt, "frames": []string{"", seq(4), b64(pack([]any{1.5, []any{stored}}))}})
	line(dict{"replica": markPrompt, "frames": []string{"", seq(8), b64(pack([]any{1.5, []any{stored}}))}})
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	page := fmt.Sprintf("# HELP x %s\n%s\nvllm:num_requests_running{model_name=\"m\",prompt=\"%s\",pod=\"%s\",token=\"%d\"} 1\nvllm:x{user=\"%s\"} 2 # {t=\"%s\"} 1\n",
		markPrompt, markPrompt, markPrompt, markPod, markToken, markSalt, markPrompt)
	metrics, err := json.Marshal(dict{"t": 1796011691.5, "replica": markPod, "text": page})
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(path), "metrics.jsonl")
	if err := os.WriteFile(beside, append(metrics, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

// views gives the files of a bundle, and the records in it in every form.
func views(t *testing.T, path string) map[string][]byte {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out := map[string][]byte{"names": nil}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		name := filepath.Base(f.Name)
		out[name] = data
		out["names"] = append(out["names"], f.Name+" "+f.Comment+" "+string(f.Extra)...)
		if f.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f.Name, f.Mode())
		}
		if name == captureName {
			unpacked(t, data, out)
		}
	}
	return out
}

// unpacked adds what a capture holds to views.
func unpacked(t *testing.T, data []byte, out map[string][]byte) {
	t.Helper()
	dec, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	if out["capture, unpacked"], err = io.ReadAll(dec); err != nil {
		t.Fatal(err)
	}
	r, err := capture.NewReader(bytes.NewReader(data), int64(len(data)), "x")
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	if _, err := capture.Export(context.Background(), &lines, r); err != nil {
		t.Fatal(err)
	}
	out["capture, exported"] = lines.Bytes()
	if err := r.Rewind(); err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next(context.Background())
		if err != nil {
			break
		}
		all := [][]byte{[]byte(rec.Replica), []byte(rec.Text), []byte(rec.Err)}
		out["records"] = append(out["records"], bytes.Join(append(all, rec.Frames...), []byte{0})...)
	}
}

func bundled(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	b := bundle{opt: capture.RedactOptions{Random: rand.NewChaCha8([32]byte{1})}}
	cmd := b.command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(context.Background())
	return out.String(), err
}

// TestBundleHoldsNoSecret: no mark of the source is in any file of a bundle, in any
// encoding; all of them are found in a copy that was not redacted.
func TestBundleHoldsNoSecret(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), markPod)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	source, clear, out := filepath.Join(dir, "events.jsonl"), filepath.Join(dir, "clear.kvcap"), filepath.Join(dir, "b.zip")
	marked(t, source)
	var said bytes.Buffer
	if code := run(context.Background(), []string{"capture", "import", "-o", clear, source}, nil, &said, &said); code != exitFine {
		t.Fatal(said.String())
	}
	data, err := os.ReadFile(clear)
	if err != nil {
		t.Fatal(err)
	}
	control := map[string][]byte{}
	unpacked(t, data, control)
	if got := found(control); len(got) != len(marks()) {
		t.Fatalf("only %v are found where nothing is redacted", got)
	}
	text, err := bundled(t, "--from", source, "-o", out)
	if err != nil || !strings.Contains(text, "is "+markPod) || !strings.Contains(text, "Lost: what the text was") {
		t.Errorf("said %s: %v", text, err)
	}
	got := views(t, out)
	for _, name := range []string{captureName, "README.txt", "report.txt", "report.json", "diagnose.md", "diagnose.json", "records"} {
		if len(got[name]) == 0 {
			t.Errorf("there is no %s", name)
		}
	}
	for mark, where := range found(got) {
		t.Errorf("%s: %s", mark, where)
	}
	if !bytes.Contains(got["diagnose.json"], []byte("undecodable-events")) {
		t.Errorf("%s", got["diagnose.json"])
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestBundleOfALiveFleet: what doctor finds is in it, without a name or an address.
func TestBundleOfALiveFleet(t *testing.T) {
	t.Parallel()
	members := engines(t, sim.Options{Replicas: 2, Rate: 40, Faults: []string{"block-size"}})
	out := filepath.Join(t.TempDir(), "b.zip")
	_, err := bundled(t, "--for", "2s", "-o", out, tapped(members[0], ""), tapped(members[1], ""), "--replica=qzdead.example=tcp://127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "1 of 3 replicas were not reached") {
		t.Errorf("ended with %v", err)
	}
	got := views(t, out)
	for name, b := range got {
		for _, word := range []string{members[0].Name, members[1].Name, "qzdead", "127.0.0.1", wire.Printable(members[0].URL)} {
			if bytes.Contains(b, []byte(word)) {
				t.Errorf("%s is in %s", word, name)
			}
		}
	}
	for _, want := range []string{"block sizes differ: ", "16 on pod-", "connection refused"} {
		if !bytes.Contains(got["doctor.txt"], []byte(want)) {
			t.Errorf("%q is missing in\n%s", want, got["doctor.txt"])
		}
	}
	var checked struct {
		Schema   string
		Errors   int
		Replicas []struct{ Replica string }
	}
	if err := json.Unmarshal(got["doctor.json"], &checked); err != nil || checked.Schema != "kvscope.doctor/1" || checked.Errors == 0 || len(checked.Replicas) != 3 {
		t.Errorf("%+v, %v", checked, err)
	}
	if !bytes.Contains(got["report.json"], []byte(checked.Replicas[0].Replica)) {
		t.Errorf("report and doctor name replicas differently: %+v", checked)
	}
}
