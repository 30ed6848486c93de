package wire

import "encoding/hex"

// foreign reads a line of a recorder that knew no replicas.
func (j *jsonRecord) foreign(rec *Record) (err error) {
	rec.Kind = Frames
	source := j.Endpoint
	if source != nil {
		rec.Frames, err = j.Frames.decode("hexadecimal", hex.DecodeString)
	} else {
		source = j.Subject
		rec.Frames, err = jsonFrames{*j.Data}.decode("hexadecimal", hex.DecodeString)
		rec.Frames = append([][]byte{[]byte(*source)}, rec.Frames...)
	}
	if err != nil {
		return err
	}
	rec.Replica = Replica(*source)
	_, name, ok := PlaneSender(rec.Frames)
	switch {
	case name != "":
		rec.Replica = name
	case ok && isTopic(rec.Frames, PlaneActivity):
		rec.Replica = LoadName(rec.Replica) // of many replicas, and none itself
	case ok && !isTopic(rec.Frames, PlaneEvents):
		// Another topic of the plane, whose sequence is none of a replica's.
		*rec = Record{At: rec.At, Replica: rec.Replica, Kind: Note, Text: "a message of Dynamo's event plane under " + Printable(string(rec.Frames[0]))}
	}
	return nil
}
