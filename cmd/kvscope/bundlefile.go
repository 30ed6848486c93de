package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kvscope/kvscope/capture"
	"github.com/kvscope/kvscope/doctor"
	"github.com/kvscope/kvscope/observe"
	"github.com/kvscope/kvscope/report"
	"github.com/kvscope/kvscope/wire"
)

// captureName is what the records of a bundle are called in it.
const captureName = "fleet.kvcap"

// bundleFolder is where all files of a bundle lie, once unpacked.
const bundleFolder = "kvscope-bundle/"

// bundleFile is a zip file that begins with a capture, which is read back.
type bundleFile struct {
	file *os.File
	zip  *zip.Writer
	made wire.Time

	capture *capture.Writer
	// from and to are where the capture lies in the file.
	from, to int64
	// elapsed gives the monotonic time of a record that came just now.
	elapsed func() int64
	// refused counts records that were too large to be written.
	refused int
}

// newBundleFile makes a new file.
func newBundleFile(path string, made wire.Time) (*bundleFile, error) {
	f, err := create(path)
	if err != nil {
		return nil, err
	}
	return &bundleFile{file: f, zip: zip.NewWriter(f), made: made}, nil
}

// remove takes an unfinished file away: it would look like a result.
func (z *bundleFile) remove() error {
	_ = z.file.Close()
	return os.Remove(z.file.Name())
}

// begin begins a file in the bundle.
func (z *bundleFile) begin(name string, method uint16) (io.Writer, error) {
	h := zip.FileHeader{Name: bundleFolder + name, Method: method, Modified: time.Unix(0, int64(z.made)).UTC()}
	h.SetMode(0o600)
	return z.zip.CreateHeader(&h)
}

// here flushes, and says how long the file is.
func (z *bundleFile) here() (int64, error) {
	if err := z.zip.Flush(); err != nil {
		return 0, err
	}
	return z.file.Seek(0, io.SeekCurrent)
}

// redacting begins the capture, and gives the source's records as they are, while
// redacted copies go into it.
func (z *bundleFile) redacting(src wire.Source, live bool, red *capture.Redactor, h capture.Header) (wire.Source, error) {
	w, err := z.begin(captureName, zip.Store) // it is packed already, and read in place
	if err == nil {
		z.from, err = z.here()
	}
	if err == nil {
		z.capture, err = capture.NewWriter(w, red.Header(h))
	}
	if err != nil {
		return nil, inputError(fmt.Errorf("%s: %w", z.file.Name(), err))
	}
	began := time.Now()
	z.elapsed = func() int64 { return int64(time.Since(began)) }
	if !live {
		z.elapsed = func() int64 { return capture.Unknown }
	}
	return &redacting{Source: src, red: red, to: z}, nil
}

// redacting writes a redacted copy of each record before it passes the record on.
type redacting struct {
	wire.Source
	red *capture.Redactor
	to  *bundleFile
}

func (r *redacting) Next(ctx context.Context) (wire.Record, error) {
	rec, err := r.Source.Next(ctx)
	if err != nil {
		return rec, err
	}
	err = r.to.capture.WriteAt(r.red.Record(rec), r.to.elapsed())
	if errors.Is(err, capture.ErrRecord) {
		r.to.refused++
		err = nil
	}
	return rec, err
}

// endCapture ends the first file.
func (z *bundleFile) endCapture() error {
	err := z.capture.Close()
	if err == nil {
		z.to, err = z.here()
	}
	return err
}

// observe reads the capture back, as whoever gets the bundle will.
func (z *bundleFile) observe(ctx context.Context, opt observe.Options) (*observe.Snapshot, error) {
	f, err := os.Open(z.file.Name())
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read from
	r, err := capture.NewReader(io.NewSectionReader(f, z.from, z.to-z.from), z.to-z.from, captureName)
	if err != nil {
		return nil, err
	}
	rec := recording{Source: r, header: r.Header()}
	opt.Name, opt.Stream, opt.Facts = captureName, rec.stream(), rec.facts()
	o := observe.New(opt)
	if err := o.Run(ctx, r, nil); err != nil {
		return nil, err
	}
	return o.Snapshot(), nil
}

// finish writes the other files, and ends the bundle.
func (z *bundleFile) finish(s *observe.Snapshot, checked *doctor.Report, said string, damaged bool) error {
	damage := ""
	if damaged {
		damage = "the source could not be read to its end, or not all replicas were reached"
	}
	if z.refused > 0 {
		said += fmt.Sprintf("Records too large to be written, and left out: %d.\n", z.refused)
	}
	type part struct {
		name  string
		write func(io.Writer) error
	}
	parts := []part{
		{"README.txt", func(w io.Writer) error {
			_, err := io.WriteString(w, "This is "+said)
			return err
		}},
		{"report.txt", func(w io.Writer) error { return report.Text(w, s, damage) }},
		{"report.json", func(w io.Writer) error { return report.JSON(w, s, damage) }},
		{"diagnose.md", func(w io.Writer) error {
			return report.FindingsMarkdown(w, s, damage, report.Made{At: z.made, Tool: made().Tool})
		}},
		{"diagnose.json", func(w io.Writer) error { return report.FindingsJSON(w, s.Findings, damage) }},
	}
	if checked != nil {
		parts = append(parts,
			part{"doctor.txt", func(w io.Writer) error { return doctor.Verbose(w, checked) }},
			part{"doctor.json", func(w io.Writer) error { return doctor.JSON(w, checked) }})
	}
	for _, p := range parts {
		w, err := z.begin(p.name, zip.Deflate)
		if err == nil {
			err = p.write(w)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return errors.Join(z.zip.Close(), z.file.Close())
}
