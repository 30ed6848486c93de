package capture

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kvscope/kvscope/wire"
)

func TestRedactRecords(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, RedactOptions{})
	seq := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	empty := []byte{0x93, 0xc0, 0x90, 0xc0} // [nil, [], nil]
	in := []wire.Record{
		{Replica: "pod-secret/3", Kind: wire.Frames, Frames: [][]byte{[]byte("kv@pod-secret@llama"), seq(7), empty}},
		{Replica: "pod-secret/3", Kind: wire.Frames, Frames: [][]byte{[]byte("secret-topic"), seq(7), []byte("secret")}},
		{Kind: wire.Frames, Frames: [][]byte{[]byte("secret")}},
		{Kind: wire.ReplayFrames, Frames: [][]byte{{}, seq(7), empty}},
		{Kind: wire.ReplayFrames, Frames: [][]byte{{}, []byte("kv@pod-secret@llama"), seq(7), empty}},
		{Kind: wire.ReplayFrames, Frames: [][]byte{{}, seq(1<<64 - 1), {}}},
		{Kind: wire.ReplayEnd, Err: "no answer from pod-secret:5557"},
		{Kind: wire.Link, Link: wire.LinkUp, Text: "EVENT_CONNECTED"},
		{Kind: wire.Link, Link: wire.LinkDown, Text: "dial pod-secret"},
		{Kind: wire.Note, Text: "secret"},
	}
	pod := r.secret.name("pod-secret")
	want := []wire.Record{
		{Replica: wire.Replica(pod + "/3"), Kind: wire.Frames, Frames: [][]byte{[]byte("kv@" + pod + "@llama"), seq(7), empty}},
		{Replica: wire.Replica(pod + "/3"), Kind: wire.Frames, Frames: [][]byte{[]byte(r.secret.name("secret-topic")), seq(7), {}}},
		{Kind: wire.Frames, Frames: [][]byte{{}}},
		{Kind: wire.ReplayFrames, Frames: [][]byte{{}, seq(7), empty}},
		{Kind: wire.ReplayFrames, Frames: [][]byte{{}, []byte("kv@" + pod + "@llama"), seq(7), empty}},
		{Kind: wire.ReplayFrames, Frames: [][]byte{{}, seq(1<<64 - 1), {}}},
		{Kind: wire.ReplayEnd, Err: redacted},
		{Kind: wire.Link, Link: wire.LinkUp, Text: "EVENT_CONNECTED"},
		{Kind: wire.Link, Link: wire.LinkDown, Text: redacted},
		{Kind: wire.Note, Text: redacted},
	}
	var got []wire.Record
	for _, rec := range in {
		got = append(got, r.Record(rec))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if c := (Redaction{Records: 10, Payloads: 3, Undecodable: 1, Odd: 1, Texts: 3}); r.count != c {
		t.Errorf("counted %v", r.count)
	}
	kept := newRedactor(t, RedactOptions{KeepNames: true, HideModels: true})
	if got := kept.Record(in[0]); string(got.Frames[0]) != "kv@pod-secret@"+kept.secret.model("llama") || got.Replica != "pod-secret/3" {
		t.Errorf("with names kept: %+v", got)
	}
	h := r.Header(Header{Tool: "t", Facts: []ReplicaFacts{{"pod-secret", wire.Facts{Model: "llama", HashAlgo: "of the secret"}}}})
	if f := h.Facts[0]; f.Replica != wire.Replica(pod) || f.Model != "llama" || f.HashAlgo != "" {
		t.Errorf("header %+v", h)
	}
	if _, err := NewRedactor(RedactOptions{Random: strings.NewReader("short")}); err == nil {
		t.Error("a short key is taken")
	}
}

func TestRedactPage(t *testing.T) {
	t.Parallel()
	r := newRedactor(t, RedactOptions{})
	page := strings.Join([]string{
		`# HELP vllm:x about secret`,
		`vllm:num_requests_running{engine="0",model_name="llama"} 3.0`,
		`vllm:lora_requests_info{max_lora="4",running_lora_adapters="secret-a,secret-b"} 1.7e+09 1796011713`,
		`up{instance="secret:8000",note="a \"quoted\" secret\\"} 1`,
		`vllm:cache_config_info{block_size="16",model_name="llama",num_gpu_blocks="200",what="secret"} 1.0`,
		`with_exemplar_bucket{le="0.5"} 7 # {trace_id="secret"} 0.3`,
		`broken{secret="1" 2`, `{"secret"} 1`, `secret text`, `vllm:y secret`,
	}, "\n")
	got := r.page(page)
	want := strings.Join([]string{
		`vllm:num_requests_running{engine="0",model_name="llama"} 3.0`,
		`vllm:lora_requests_info{max_lora="` + r.secret.text("4") + `",running_lora_adapters="` + r.secret.text("secret-a,secret-b") + `"} 1.7e+09 1796011713`,
		`up{instance="` + r.secret.name("secret:8000") + `",note="` + r.secret.text(`a "quoted" secret\`) + `"} 1`,
		`vllm:cache_config_info{block_size="16",model_name="llama",num_gpu_blocks="200",what="` + r.secret.text("secret") + `"} 1.0`,
		`with_exemplar_bucket{le="0.5"} 7`, "",
	}, "\n")
	if diff := cmp.Diff(want, got); diff != "" || strings.Contains(got, "secret") || r.count.Lines != 5 {
		t.Errorf("%d lines dropped (-want +got)\n%s", r.count.Lines, diff)
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	s, err := newSecret(seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for v := range uint64(20000) {
		m := s.number(tokenDomain, v)
		if m >= 1<<31 || seen[m] {
			t.Fatalf("%d became %d", v, m)
		}
		seen[m] = true
	}
	small := map[uint64]bool{}
	for v := range uint64(256) { // a whole permutation
		small[s.feistel(handleDomain, 8, v)] = true
	}
	if len(small) != 256 {
		t.Errorf("%d of 256 values", len(small))
	}
	other, err := newSecret(seeded(2))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, b := rapid.Uint64().Draw(rt, "a"), rapid.Uint64().Draw(rt, "b")
		x, y := s.number(handleDomain, a), s.number(handleDomain, b)
		if (a == b) != (x == y) || classOf(a) != classOf(x) || x != s.number(handleDomain, a) {
			rt.Fatalf("%x, %x became %x, %x", a, b, x, y)
		}
		if a>>32 != 0 && x == other.number(handleDomain, a) {
			rt.Fatalf("two keys give %x for %x", x, a)
		}
		digest := binary.BigEndian.AppendUint64(rapid.SliceOfN(rapid.Byte(), 0, 24).Draw(rt, "digest"), a)
		if h := s.handle(wire.BytesHandle(digest)); len(h.S) != len(digest) || h.N != x {
			rt.Fatalf("digest %x became %v", digest, h)
		}
	})
}
