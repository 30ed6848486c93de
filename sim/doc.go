// Package sim makes fleets to try kvscope on, without a GPU or a real engine.
//
// An [Engine] is a model of vLLM's scheduler and block cache: it says which
// blocks are stored, reused and evicted when, and what is resident. It is pure,
// and its truth is its own: nothing of it comes from the index that is tested
// with it. A [Publisher] and a [Replayer] are the sockets of an engine, spoken
// to by anyone's ZMTP. A [Fleet] puts both together: engines with sockets and
// pages on the loopback, conversations with shared prompts, a router in front,
// and faults from the table [Faults].
//
// Beside them stands the kvbench workload: a deterministic stream of cache events
// and queries for which the scores of Dynamo's index are known.
//
// Fleet, Publisher and Replayer are safe for concurrent use. An Engine is not.
// Workloads are plain data, safe to share between goroutines once built.
package sim
