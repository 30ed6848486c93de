//go:build !hftok

package hf

import "errors"

// Available reports whether this program has the Rust library.
const Available = false

func open([]byte) (rust, error) {
	return nil, errors.New("this program is built without HuggingFace's tokenizers: build it with make hftok, which needs cargo and a C compiler")
}
