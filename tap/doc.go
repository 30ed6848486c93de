// Package tap connects to the event sockets of a running fleet and yields what
// they publish as a wire.Source, without disturbing anyone: nothing is ever
// sent but subscriptions, ZMTP heartbeats and, under a policy and a budget,
// requests for replay.
//
// A Tap has one link for each Endpoint, with a goroutine, a connection and a
// state of its own, so that no publisher's fault reaches another. Links come
// and go with Add and Remove while it runs. Whoever runs a stream.Tracker over
// the records hands its wants to Want; the answers come as records too.
//
// The greeting and the handshake are go-zeromq/zmq4's, behind a guard; frames,
// heartbeats and reconnection are ours, because that library's sockets lose
// links for good, answer no heartbeat, deliver twice after a reconnection and
// trust the sizes that a peer claims.
//
// Dynamo's event plane is followed on a NATS server too: one link, whose
// messages name the replicas.
//
// # When the program is slow
//
// A link that finds its share of the queue full waits for a moment
// (Options.Patience): TCP then pushes back, and the publisher's own buffer takes
// the burst. A program that is still behind after that loses messages here, and
// not in the publisher's memory: the link goes on reading, answers heartbeats,
// counts what it drops and says so in a Note. Either way the loss is a gap in
// the sequence numbers, and memory stays within Options.QueueBytes. Large messages
// that are still being received have as much again for all links together; one
// for which there is no room ends its connection.
//
// A Tap is safe for concurrent use, except that Next has one caller at a time.
package tap
