package index

import (
	"github.com/zeebo/xxh3"

	"github.com/kvscope/kvscope/wire"
)

// key is the form in which a handle is kept: an integer hash as it is, a byte
// hash by its XXH3-64. Keys live within one replica's table, so a publisher
// that forges a collision harms only the picture of itself.
func key(h wire.Handle) uint64 {
	if h.S != "" {
		return xxh3.HashString(h.S)
	}
	return h.N
}
