// Package fleet says who is there, and learns about replicas over HTTP.
//
// A Finder looks for the members of a fleet where a Spec says: at fixed
// addresses, in what engines tell of themselves, behind DNS names, in a
// directory of Dynamo's file discovery, in Kubernetes' EndpointSlices. A
// Scraper fetches their metrics pages, of which ParseMetrics reads what a
// replica is (wire.Facts) and how busy it is (wire.Load), and ParseRouter what a
// router did. It sends nothing but GETs, and lookups of names.
//
// Everything here is untrusted input from the network: sizes are bounded and
// nothing panics. Functions, Finders and Probers are safe for concurrent use; a
// Scraper runs once.
package fleet
