// Package tui is the terminal UI: views of an observe.Snapshot. There is one
// Bubble Tea model; views are plain structs that draw, name their keys and
// handle actions. Nothing here does I/O: what the UI reads, asks, copies or
// writes goes through functions that cmd hands in, called from commands and
// never from Update.
package tui
