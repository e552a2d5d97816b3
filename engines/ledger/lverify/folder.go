package lverify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// periodWindow bounds the memory of a decoder in bytes: no file of a period needs more.
const periodWindow = 64 << 20

// File checks the next file as Next does. Findings name it.
func (p *Periods) File(ctx context.Context, path string) (rep Report, err error) {
	in, err := openFrame(path)
	if err != nil {
		return rep, err
	}
	defer in.close()
	rep, err = p.Next(ctx, in)
	if err != nil && errors.Is(in.err, err) { // bytes that are no frame are a bad file, not a failure
		rep.found(Finding{Where: "frame", Detail: err.Error()})
		err = nil
	}
	name := filepath.Base(path)
	for i := range rep.Findings {
		rep.Findings[i].Where = name + ": " + rep.Findings[i].Where
	}
	return rep, err
}

// frame reads the lines of a file, and keeps the error of its decoder.
type frame struct {
	f   *os.File
	z   *zstd.Decoder
	err error
}

func openFrame(path string) (*frame, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(periodWindow))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &frame{f: f, z: z}, nil
}

// Read reads lines.
func (c *frame) Read(b []byte) (int, error) {
	n, err := c.z.Read(b)
	if err != nil && err != io.EOF {
		var path *fs.PathError
		if !errors.As(err, &path) {
			c.err = err
		}
	}
	return n, err
}

func (c *frame) close() {
	c.z.Close()
	_ = c.f.Close() // only read
}

// Folder checks the files of a folder, from the first period on. A file that is missing between two
// others is a finding. The report is that of all files.
func (p *Periods) Folder(ctx context.Context, dir string) (Report, error) {
	sum := Report{Whole: true}
	for {
		path := filepath.Join(dir, record.PeriodFile(p.last.Period+1))
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		rep, err := p.File(ctx, path)
		sum.Join(rep)
		if err != nil || !rep.OK {
			return sum, err
		}
	}
	found, err := periodsIn(dir)
	if n := uint64(len(found)); err == nil && n != p.last.Period {
		sum.found(Finding{Where: record.PeriodFile(p.last.Period + 1), Detail: fmt.Sprintf(
			"it is missing: the folder has %d files of periods, and %d of them follow one another", n, p.last.Period)})
	}
	sum.OK = err == nil && len(sum.Findings) == 0
	return sum, err
}

// Join adds the report of what follows.
func (r *Report) Join(next Report) {
	first, from, periods := r.Batches == 0, r.FromSeq, r.Periods
	next.Records += r.Records
	next.Batches += r.Batches
	next.Findings = append(r.Findings, next.Findings...)
	if *r = next; !first {
		r.FromSeq, r.Periods = from, periods
	}
	r.OK = r.OK && len(r.Findings) == 0
}

// Database checks the ledger that r reads, which must go on from the last file, and adds its report
// to sum.
func (p *Periods) Database(ctx context.Context, r store.Reader, sum *Report) error {
	rep, err := Verify(ctx, r, p.o)
	if err == nil && rep.OK {
		p.follow(r, &rep)
	}
	rep.OK = rep.OK && len(rep.Findings) == 0
	sum.Join(rep)
	return err
}

// follow compares a sound ledger with the files before it.
func (p *Periods) follow(r store.Reader, rep *Report) {
	h := tables.GetHorizon(r)
	if h.Period != p.last.Period || h.Statement != p.last.Digest() && h.Period != 0 {
		rep.found(Finding{Where: "periods", Detail: fmt.Sprintf(
			"%d periods are closed, and the files are of %d periods, or of another ledger", h.Period, p.last.Period)})
		return
	}
	if p.open == nil {
		return
	}
	for seq, rec := range tables.Records(r, h.Seq+1, tables.LastSeq(r)+1) {
		p.onces.check(rec, func(format string, args ...any) {
			rep.found(Finding{Where: "journal", Seq: seq, Detail: fmt.Sprintf(format, args...)})
		})
	}
}

// Export checks an export, which must go on from the last file, and adds its report to sum.
func (p *Periods) Export(ctx context.Context, in io.Reader, sum *Report) error {
	x := newExport(in, p.o)
	x.after, x.each = p.open, p.each
	err := x.all(ctx)
	sum.Join(x.rep)
	return err
}
