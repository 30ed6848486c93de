package route

import (
	"encoding/binary"
	"strings"

	"github.com/zeebo/blake3"
)

// sglangRing is the ring of consistent_hashing and prefix_hash in smg 1.13.0. A
// point at a key itself is met first there.
var sglangRing = ringKind{
	sep: "#", atKey: true,
	worker: sglangURL,
	hash:   func(text string) (hi, lo uint64) { return sglangPosition([]byte(text)), 0 },
}

// sglangVnodes is how often each worker stands on the ring.
const sglangVnodes = 150

// sglangURL is what the router calls a worker. Where its metrics were read, names
// have lost their scheme.
func sglangURL(name string) string {
	if strings.Contains(name, "://") {
		return name
	}
	return "http://" + name
}

// sglangPosition is where a text stands on the ring: the first 8 bytes of its
// BLAKE3, little-endian.
func sglangPosition(text []byte) uint64 {
	sum := blake3.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:8])
}
