package index

import "testing"

func verify(t testing.TB, x *Index) {}
