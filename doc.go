// Package kvscope is the root of a terminal tool for people who operate fleets
// of LLM replicas behind a KV-cache-aware router. The command is in
// cmd/kvscope; the packages below it are listed, with what each may import, in
// the table of deps_test.go.
package kvscope
