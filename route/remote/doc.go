// Package remote asks live routers what they would do, and sets their answers
// beside ours: Dynamo's frontend by its query-only probe, its standalone indexer,
// its selection service, and the request trace that a router wrote.
//
// Each question is sent only by the method that is named after it, and none
// changes what is asked: nothing is dispatched, booked or registered. The token
// ids of the prompt go over the network with most of them.
//
// A Client is safe for concurrent use. A Trace is for one goroutine.
package remote
