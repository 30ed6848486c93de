package capture

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/kvscope/kvscope/wire"
)

// secret replaces values by others under a key that is used once and kept
// nowhere: equal ones by equal ones, different ones by different ones, and
// without the key nobody can go back or confirm a guess.
type secret struct {
	block cipher.Block
	mac   hash.Hash
	// in and out are a Feistel round's blocks; as fields they are made once.
	in, out [aes.BlockSize]byte
	sum     [sha256.Size]byte
	tokens  map[wire.Token]wire.Token
	texts   map[string]string
}

// Domains keep the same number from being replaced alike as a token and as a
// hash, which would link the two.
const (
	tokenDomain byte = iota
	handleDomain
	adapterDomain
	textDomain
	nameDomain
	modelDomain
	bytesDomain
	workerDomain
	localDomain
)

// newSecret takes a key from random.
func newSecret(random io.Reader) (*secret, error) {
	var key [16 + 32]byte
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return nil, fmt.Errorf("redact: no random key: %w", err)
	}
	block, err := aes.NewCipher(key[:16])
	if err != nil {
		return nil, err
	}
	return &secret{
		block: block, mac: hmac.New(sha256.New, key[16:]),
		tokens: map[wire.Token]wire.Token{}, texts: map[string]string{},
	}, nil
}

// feistel permutes the numbers of an even number of bits, at most 64.
func (s *secret) feistel(domain byte, bits uint, v uint64) uint64 {
	const rounds = 10 // as in NIST's FF1, which is built in the same way
	half := bits / 2
	mask := uint64(1)<<half - 1
	left, right := v>>half&mask, v&mask
	for i := range byte(rounds) {
		s.in[0], s.in[1], s.in[2] = domain, byte(bits), i
		binary.BigEndian.PutUint64(s.in[8:], right)
		s.block.Encrypt(s.out[:], s.in[:])
		left, right = right, left^binary.BigEndian.Uint64(s.out[:])&mask
	}
	return left<<half | right
}

// number permutes 64-bit numbers, each within its own class: below 2^31, the
// rest of 32 bits, below 2^63, and the rest. So ids stay ids, small numbers
// stay no hashes, and signs stay. Walking on until the class is met again
// permutes the class, and takes two steps on average.
func (s *secret) number(domain byte, v uint64) uint64 {
	class := classOf(v)
	bits := uint(64)
	if class < 2 {
		bits = 32
	}
	for {
		if v = s.feistel(domain, bits, v); classOf(v) == class {
			return v
		}
	}
}

func classOf(v uint64) int {
	switch {
	case v < 1<<31:
		return 0
	case v < 1<<32:
		return 1
	case v < 1<<63:
		return 2
	}
	return 3
}

func (s *secret) token(t wire.Token) wire.Token {
	if mapped, ok := s.tokens[t]; ok {
		return mapped
	}
	mapped := wire.Token(s.number(tokenDomain, uint64(t)))
	const most = 1 << 18 // vocabularies are smaller
	if len(s.tokens) < most {
		s.tokens[t] = mapped
	}
	return mapped
}

// handle keeps the width of a byte hash, and that its last 8 bytes are the
// integer that another engine sends for the same digest.
func (s *secret) handle(h wire.Handle) wire.Handle {
	const word = 8
	switch n := len(h.S); {
	case !h.Set:
		return h
	case n == 0:
		return wire.IntHandle(s.number(handleDomain, h.N))
	case n < word:
		var b [word]byte
		binary.BigEndian.PutUint64(b[:], s.feistel(handleDomain, uint(8*n), h.N))
		return wire.BytesHandle(b[word-n:])
	default:
		out := s.expand(handleDomain, h.S, n-word)
		return wire.BytesHandle(binary.BigEndian.AppendUint64(out, s.number(handleDomain, h.N)))
	}
}

// expand makes n bytes of a text.
func (s *secret) expand(domain byte, text string, n int) []byte {
	out := make([]byte, 0, n+sha256.Size)
	for i := uint32(0); len(out) < n; i++ {
		var head [5]byte
		head[0] = domain
		binary.BigEndian.PutUint32(head[1:], i)
		s.mac.Reset()
		s.mac.Write(head[:])
		io.WriteString(s.mac, text) //nolint:errcheck // a hash never fails
		out = append(out, s.mac.Sum(s.sum[:0])...)
	}
	return out[:n]
}

// dynamoSalt is how Dynamo's frontend marks its salts; its relay looks for it.
const dynamoSalt = "dynamo-cache-salt:"

// text replaces a LoRA name, a salt, a multimodal hash or a session: digests in
// hexadecimal by such ones, all else by a short word.
func (s *secret) text(t string) string {
	if t == "" {
		return ""
	}
	return s.remember(textDomain, t, func() string {
		if rest, ok := strings.CutPrefix(t, dynamoSalt); ok {
			return dynamoSalt + s.word(textDomain, "x", rest)
		}
		if isDigest(t) {
			return hex.EncodeToString(s.expand(textDomain, t, len(t)/2+1))[:len(t)]
		}
		return s.word(textDomain, "x", t)
	})
}

// word makes a word of 16 hexadecimal digits behind a prefix.
func (s *secret) word(domain byte, prefix, text string) string {
	return prefix + "-" + hex.EncodeToString(s.expand(domain, text, 8))
}

// name replaces the name of a pod, a host or a replica; a rank behind a slash
// stays.
func (s *secret) name(name string) string {
	pod, rank, ok := strings.Cut(name, "/")
	if ok && !isCount(rank) {
		pod, ok = name, false
	}
	if pod != "" {
		pod = s.remember(nameDomain, pod, func() string { return s.word(nameDomain, "pod", pod) })
	}
	if ok {
		return pod + "/" + rank
	}
	return pod
}

func (s *secret) model(name string) string {
	if name == "" {
		return ""
	}
	return s.remember(modelDomain, name, func() string { return s.word(modelDomain, "model", name) })
}

// remember keeps the short texts that repeat.
func (s *secret) remember(domain byte, text string, make func() string) string {
	const most, long = 1 << 14, 256
	key := string(rune(domain)) + text
	if known, ok := s.texts[key]; ok {
		return known
	}
	made := make()
	if len(s.texts) < most && len(text) <= long {
		s.texts[key] = made
	}
	return made
}

// isDigest reports whether t is a digest in hexadecimal.
func isDigest(t string) bool {
	const shortest, longest = 16, 1 << 10
	if len(t) < shortest || len(t) > longest {
		return false
	}
	return strings.Trim(t, "0123456789abcdef") == ""
}

// isCount reports whether t is a small number, such as a rank.
func isCount(t string) bool {
	const longest = 5
	return t != "" && len(t) <= longest && strings.Trim(t, "0123456789") == ""
}
