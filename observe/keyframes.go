package observe

import "maps"

// Keyframes are copies of the Observer at some positions of a recording, so
// that seeking applies only what lies between. There are at most maxKeyframes,
// evenly spread, and they take at most keyframeBytes; beyond either every
// second one goes and the distance doubles.
const (
	maxKeyframes  = 64
	keyframeBytes = 768 << 20
	// firstDistance is how many records lie between keyframes at first.
	firstDistance = 4096
)

type keyframe struct {
	pos  int
	obs  *Observer
	size int
}

type keyframes struct {
	frames   []keyframe
	distance int
	bytes    int
}

// pass is told of every position reached for the first time, in order.
func (k *keyframes) pass(pos int, obs *Observer) {
	if k.distance == 0 {
		k.distance = firstDistance
	}
	if pos%k.distance != 0 {
		return
	}
	size := obs.idx.Size() + obs.loads.Size() + obs.watch.Size()
	k.frames = append(k.frames, keyframe{pos: pos, obs: obs.clone(), size: size})
	k.bytes += size
	for len(k.frames) > maxKeyframes || k.bytes > keyframeBytes && len(k.frames) > 1 {
		k.thin()
	}
}

// thin drops every keyframe that does not lie at twice the distance.
func (k *keyframes) thin() {
	k.distance *= 2
	keep := k.frames[:0]
	k.bytes = 0
	for _, f := range k.frames {
		if f.pos%k.distance == 0 {
			keep = append(keep, f)
			k.bytes += f.size
		}
	}
	clear(k.frames[len(keep):])
	k.frames = keep
}

// before gives the last keyframe at or before a position.
func (k *keyframes) before(pos int) (keyframe, bool) {
	for i := len(k.frames) - 1; i >= 0; i-- {
		if k.frames[i].pos <= pos {
			return k.frames[i], true
		}
	}
	return keyframe{}, false
}

// clone copies an Observer; what judges requests does not come along.
func (o *Observer) clone() *Observer {
	c := *o
	c.tracker, c.idx = o.tracker.Clone(), o.idx.Clone()
	c.models, c.gone = maps.Clone(o.models), maps.Clone(o.gone)
	c.drops = maps.Clone(o.drops)
	c.loads = o.loads.Clone()
	c.tape = o.tape.clone()
	c.watch = o.watch.Clone()
	c.auditor, c.decided = nil, nil
	return &c
}
