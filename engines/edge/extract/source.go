package extract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/origin"
	"ronbox/engines/edge/pmtiles"
)

// Bounds of requests to a host.
const (
	atOnce     = 4
	mostAsked  = 4 << 20  // bytes of a request
	leastAsked = 64 << 10 // unless fewer are wanted
	firstAsked = 256 << 10
	// A hundred and twenty-eighth of the part, if that is more than firstAsked: a kill loses at
	// most four requests.
	shareAsked = 128
	mostGap    = 32 << 10 // bytes between two ranges that are read with one request
	// The gaps that are read have at most a twenty-fifth of the bytes of the ranges, and these.
	shareGaps  = 25
	spareGaps  = 64 << 10
	firstBytes = 16 << 10 // header and root directory, by the format
	oneTry     = time.Hour
)

// Errors of a source, which a repetition does not change.
var (
	// ErrNoRanges is returned for a host that does not answer with the range that was asked for.
	ErrNoRanges = errors.New("the host does not send ranges of the file")
	// ErrChanged is returned for a source that is not as it was when the extract was planned.
	ErrChanged = errors.New("the file at the host has changed since the extract began")
)

// source is a file at a host.
type source struct {
	asset.Target
	etag  string // strong; "": not known yet
	size  int64
	asked *atomic.Int64 // requests
}

// first reads the beginning of the source, and sets its tag and its size.
func (x *Extractor) first(ctx context.Context, s *source) (b []byte, err error) {
	err = x.ask(ctx, *s, http.Header{"Range": {fmt.Sprintf("bytes=0-%d", firstBytes-1)}}, firstBytes,
		func(a *upstream.Answer) error {
			var from, to int64
			n, err := fmt.Sscanf(a.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &s.size)
			if n != 3 || err != nil || s.size <= 0 || from != 0 || to != min(firstBytes, s.size)-1 {
				return ErrNoRanges
			}
			if s.etag = a.ETag(); s.etag == "" {
				return &asset.FillError{Reason: asset.ETagInvalid,
					Cause: fmt.Errorf("the answer has no strong ETag: %.64q", a.Header["Etag"])}
			}
			b = make([]byte, to+1)
			_, err = io.ReadFull(x.paced(ctx, a.Body), b)
			return err
		})
	return b, err
}

// rest reads len(b) bytes of the source at an offset. After an error the first n are read.
func (x *Extractor) rest(ctx context.Context, s source, at int64, b []byte) (n int, err error) {
	last := at + int64(len(b)) - 1
	h := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", at, last)}, "If-Match": {s.etag}}
	err = x.ask(ctx, s, h, int64(len(b)), func(a *upstream.Answer) (err error) {
		switch {
		case a.ETag() != s.etag:
			return ErrChanged
		case a.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", at, last, s.size):
			return ErrNoRanges
		}
		n, err = io.ReadFull(x.paced(ctx, a.Body), b)
		return err
	})
	return n, err
}

// ask sends a request for a range of at most most bytes. Its errors are ErrNoRanges, ErrChanged, a
// *asset.FillError or the cause of ctx.
func (x *Extractor) ask(ctx context.Context, s source, h http.Header, most int64,
	take func(*upstream.Answer) error) error {
	s.asked.Add(1)
	r := upstream.Request{URL: s.URL, Header: h, Max: most, Timeout: oneTry, Idle: x.d.Config().Fill.Idle.D()}
	err := x.d.Owner.Ask(ctx, s.Host, r, func(a *upstream.Answer) error {
		if a.Status != http.StatusPartialContent {
			return ErrNoRanges
		}
		return take(a)
	})
	status := upstream.StatusOf(err)
	failed, ok := errors.AsType[*asset.FillError](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, upstream.ErrTooLarge), errors.Is(err, ErrNoRanges):
		return ErrNoRanges
	case errors.Is(err, ErrChanged), s.etag != "" && (status == http.StatusPreconditionFailed ||
		status == http.StatusNotFound || status == http.StatusGone ||
		status == http.StatusRequestedRangeNotSatisfiable):
		return ErrChanged
	case ok: // a copy, because others may have the error, too
		why := *failed
		why.URL = s.URL
		return &why
	}
	return &asset.FillError{Reason: origin.ReasonOf(err), URL: s.URL, Cause: err}
}

// fetch reads ranges of the source, and calls sink with their bytes in order. Requests for chunk
// bytes at most are under way atOnce. After an error sink has all bytes that came before the first
// one that is missing.
func (x *Extractor) fetch(ctx context.Context, s source, ranges []pmtiles.Section, chunk int64,
	sink func([]byte) error) error {
	todo, began := batches{rest: ranges}, time.Now()
	var got atomic.Int64          // bytes in sink
	var mu sync.Mutex             // a leaf, guards todo and before
	before := make(chan struct{}) // closed when all earlier bytes are in sink
	close(before)
	return flow.Fan(ctx, atOnce, func(ctx context.Context, _ int) error {
		buf := []byte(nil)
		for {
			mu.Lock()
			todo.chunk = uint64(stepOf(chunk, got.Load(), time.Since(began)))
			b := todo.next()
			turn := before
			before = make(chan struct{})
			done := before
			mu.Unlock()
			if len(b.pieces) == 0 {
				return nil
			}
			if cap(buf) < int(b.at.Length) {
				buf = make([]byte, b.at.Length)
			}
			buf = buf[:b.at.Length]
			n, err := x.rest(ctx, s, int64(b.at.Offset), buf)
			select { // also after an error, which would end the requests for earlier bytes
			case <-turn:
			case <-ctx.Done():
				err = cmp.Or(err, context.Cause(ctx))
			}
			select {
			case <-turn:
				err = cmp.Or(b.pass(buf[:n], sink), err)
				got.Add(int64(n))
			default:
			}
			if err != nil {
				return err
			}
			close(done)
		}
	})
}

// sections reads sections of the source, and calls each with the bytes of one after the other.
func (x *Extractor) sections(ctx context.Context, s source, all []pmtiles.Section, each func([]byte) error) error {
	todo := slices.Clone(all)
	buf := []byte(nil)
	return x.fetch(ctx, s, todo, mostAsked, func(b []byte) error {
		buf = append(buf, b...)
		if uint64(len(buf)) < all[0].Length {
			return nil
		}
		err := each(buf)
		all, buf = all[1:], buf[:0]
		return err
	})
}

// batches divides ranges into requests.
type batches struct {
	rest         []pmtiles.Section
	chunk        uint64 // bytes of a request
	wanted, gaps uint64 // bytes so far
}

// batch is one request, with the ranges that it has in their order.
type batch struct {
	at     pmtiles.Section
	pieces []pmtiles.Section
}

// pass calls sink with the bytes of the pieces, up to the first one that buf does not have.
func (b batch) pass(buf []byte, sink func([]byte) error) error {
	for _, p := range b.pieces {
		from := min(p.Offset-b.at.Offset, uint64(len(buf)))
		to := min(from+p.Length, uint64(len(buf)))
		if from < to {
			if err := sink(buf[from:to]); err != nil {
				return err
			}
		}
		if to-from < p.Length {
			return nil
		}
	}
	return nil
}

// next returns the next request. It has no pieces if there is none.
func (d *batches) next() (b batch) {
	for len(d.rest) > 0 {
		p := d.rest[0]
		p.Length = min(p.Length, d.chunk)
		low, high := p.Offset, p.Offset+p.Length
		if len(b.pieces) > 0 {
			low, high = min(low, b.at.Offset), max(high, b.at.Offset+b.at.Length)
			gap := max(high-low-b.at.Length, p.Length) - p.Length
			if over := high - low - min(high-low, d.chunk); low == b.at.Offset && over > 0 && over+gap < p.Length {
				p.Length, high = p.Length-over, high-over // more of it is read than of the gap
			}
			if high-low > d.chunk || gap > mostGap || d.gaps+gap > d.wanted/shareGaps+spareGaps {
				return b
			}
			d.gaps += gap
		}
		b.at = pmtiles.Section{Offset: low, Length: high - low}
		b.pieces = append(b.pieces, p)
		d.wanted += p.Length
		if d.rest[0].Length -= p.Length; d.rest[0].Length == 0 {
			d.rest = d.rest[1:]
			continue
		}
		d.rest[0].Offset += p.Length
	}
	return b
}

// skip leaves out the first bytes of ranges.
func skip(ranges []pmtiles.Section, bytes int64) []pmtiles.Section {
	left := uint64(bytes)
	for len(ranges) > 0 && left >= ranges[0].Length {
		left -= ranges[0].Length
		ranges = ranges[1:]
	}
	if len(ranges) > 0 {
		ranges[0].Offset += left
		ranges[0].Length -= left
	}
	return ranges
}

// chunkOf returns the most bytes of a request for a part of some bytes.
func chunkOf(size int64) int64 { return max(firstAsked, min(size/shareAsked, mostAsked)) }

// stepOf returns the bytes of the next request, after got bytes came in some time: those of a
// second, so that a cut or a kill loses little of a slow line.
func stepOf(chunk, got int64, took time.Duration) int64 {
	switch {
	case got == 0:
		return min(chunk, firstAsked)
	case took <= 0:
		return chunk
	}
	return max(leastAsked, min(chunk, int64(float64(got)/took.Seconds())))
}

// pace spreads bytes over time.
type pace struct {
	mu   sync.Mutex // a leaf
	next time.Time  // guarded by mu
}

// take waits until n more bytes fit into a rate in bytes a second, or until ctx ends. A rate of 0
// is no limit.
func (p *pace) take(ctx context.Context, n int, rate int64) error {
	if rate == 0 {
		return nil
	}
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	p.mu.Unlock()
	return sleep(ctx, wait)
}

// sleep waits for d, or until ctx ends, and returns its cause.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pacedReader reads at edge.extract.rate, and counts.
type pacedReader struct {
	ctx context.Context // of the request
	x   *Extractor
	in  io.Reader
}

func (x *Extractor) paced(ctx context.Context, in io.Reader) io.Reader {
	return pacedReader{ctx, x, in}
}

func (r pacedReader) Read(b []byte) (int, error) {
	n, err := r.in.Read(b[:min(len(b), leastAsked/4)])
	r.x.bytes(n)
	if late := r.x.pace.take(r.ctx, n, r.x.d.Config().Extract.Rate.Bytes()); late != nil {
		return n, late
	}
	return n, err
}
