// Package fleet learns about replicas over HTTP. So far it reads the metrics
// pages of engines: what a replica is (wire.Facts) and how busy it is
// (wire.Load).
//
// Everything here is untrusted input from the network: sizes are bounded and
// nothing panics. Functions are safe for concurrent use.
package fleet
