package lab

import "github.com/kvscope/kvscope/wire"

// event is something that will happen in a run.
type event struct {
	at wire.Time
	// order tells apart what happens at one time: first said, first done.
	order uint64
	kind  eventKind
	// of is a request that arrives, or else a flight.
	of int32
}

type eventKind uint8

const (
	arrives eventKind = iota
	prefillEnds
	ends
	fleetGrows
)

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
}

// queue is a heap of events, the next one first.
type queue struct {
	heap []event
	said uint64
}

func (q *queue) push(at wire.Time, kind eventKind, of int32) {
	q.said++
	q.heap = append(q.heap, event{at, q.said, kind, of})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.heap[i].before(&q.heap[up]) {
			break
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

func (q *queue) pop() event {
	out, last := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if q.heap[child].before(&q.heap[least]) {
				least = child
			}
		}
		if least == i {
			return out
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}

// line is what waits, first come first served.
type line[T any] struct {
	items []T
	head  int
}

func (l *line[T]) len() int    { return len(l.items) - l.head }
func (l *line[T]) first() *T   { return &l.items[l.head] }
func (l *line[T]) push(item T) { l.items = append(l.items, item) }

func (l *line[T]) pop() T {
	out := l.items[l.head]
	if l.head++; l.head > 64 && 2*l.head > len(l.items) {
		l.items = l.items[:copy(l.items, l.items[l.head:])]
		l.head = 0
	}
	return out
}
