package wire

import (
	"bytes"
	"io"
	"testing"

	"github.com/kvscope/kvscope/refdata"
)

// BenchmarkDecode decodes real batches of two dialects, over and over.
func BenchmarkDecode(b *testing.B) {
	all := map[bool][][]byte{}
	size := map[bool]int{}
	blocks := map[bool]int{}
	for _, p := range recorded(b) {
		batch, err := Decode("", 0, p)
		if err != nil {
			b.Fatal(err)
		}
		array := batch.Events[0].Array
		all[array] = append(all[array], p)
		size[array] += len(p)
		for _, e := range batch.Events {
			blocks[array] += len(e.Hashes)
		}
	}
	for array, name := range map[bool]string{false: "map", true: "array"} {
		b.Run(name, func(b *testing.B) {
			var d Decoder
			b.ReportAllocs()
			b.SetBytes(int64(size[array]))
			for b.Loop() {
				for _, p := range all[array] {
					if _, err := d.Decode("", 0, p); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(blocks[array])*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
		})
		b.Run("verdict/"+name, func(b *testing.B) {
			relay := DynamoRelay{BlockSize: 32}
			b.ReportAllocs()
			b.SetBytes(int64(size[array]))
			for b.Loop() {
				for _, p := range all[array] {
					if v := relay.Judge(p); v.Lost != "" {
						b.Fatal(v.Lost)
					}
				}
			}
		})
	}
}

// BenchmarkJSONL reads a recording.
func BenchmarkJSONL(b *testing.B) {
	file := refdata.Files(b, testRoot, "vllm/c_reset/events.jsonl.gz")[0]
	plain := refdata.Unpack(b, file)
	b.ReportAllocs()
	b.SetBytes(int64(len(plain)))
	for b.Loop() {
		if _, err := readAll(b, NewJSONL(bytes.NewReader(plain), file)); err != io.EOF {
			b.Fatal(err)
		}
	}
}
