// Package lab runs one workload through routers' rules on models of engines, and
// measures what each of them makes of it.
//
// Everything is counted in blocks that have names: equal names are equal prefixes,
// so a cache is a set of names and no token is kept. An engine is a model of a
// block cache ([VLLM] or [SGLang]); a router is a [route.Router] with what it
// believes of the caches, from the engines' events, and what it has booked. Time
// is simulated. The same options give the same results, whatever the machine.
//
// What it says nothing of is in docs/lab.md. Workloads are safe to share between
// goroutines once made; the rest of the package's types are plain data.
package lab
