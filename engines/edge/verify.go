package edge

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/cas"
	"ronbox/store"
)

// Finding is something that is stored and damaged.
type Finding struct {
	Kind  string // object, pack or row
	Name  string // the digest of an object, the id of a pack, the bucket and the key of a row
	URL   string // one that leads to the object
	Size  int64  // bytes
	Fault string
	Done  string // kept, refetched or dropped
}

// What was done about a Finding. A dropped object lies in the quarantine folder for a while.
const (
	Kept      = "kept"
	Refetched = "refetched"
	Dropped   = "dropped"
)

// Verified counts what a Verify has read.
type Verified struct {
	Objects, Packs int
	Bytes          int64 // of objects
	Bad            int
}

// VerifyOptions are how Verify goes about it. Progress and Found may be nil.
type VerifyOptions struct {
	// Fix sets damaged objects aside, and fetches them anew from the URLs that led to them where that is allowed.
	Fix      bool
	Progress func(done, total int64) // bytes of objects
	Found    func(Finding)
	rate     int64 // bytes a second; 0: as fast as can be
}

// ErrVerifying is returned while another Verify is under way.
var ErrVerifying = fmt.Errorf("%w: the edge is being verified already", flow.ErrBusy)

// refetchMost bounds the URLs of one object that are fetched anew; the others are when they are asked for.
const refetchMost = 64

// Verify reads every object and every pack, and reports those that do not hold what their names say or that the disk does not read. A damaged
// object that is kept is hashed again before its next use. Rows that do not read are dropped in any case. Verify ends early when ctx ends.
func (e *Engine) Verify(ctx context.Context, o VerifyOptions) (v Verified, err error) {
	if !e.verifying.CompareAndSwap(false, true) {
		return v, ErrVerifying
	}
	defer e.verifying.Store(false)
	return e.verify(ctx, o)
}

func (e *Engine) verify(ctx context.Context, o VerifyOptions) (Verified, error) {
	r := &verification{e: e, o: o}
	var err error
	if !e.d.Amnesia {
		err = r.objects(ctx)
	}
	if err == nil {
		err = e.rehash(ctx, r.pack)
	}
	return r.v, err
}

// verification is one run of Verify.
type verification struct {
	e *Engine
	o VerifyOptions
	v Verified
}

func (r *verification) found(f Finding) {
	r.v.Bad++
	if r.o.Found != nil {
		r.o.Found(f)
	}
}

// pack records one pack that was read. The pack set serves a damaged one no more.
func (r *verification) pack(p PackInfo, err error) {
	r.v.Packs++
	if err == nil {
		return
	}
	r.e.damaged("pack", p.ID+": "+err.Error())
	r.found(Finding{Kind: "pack", Name: p.ID, Size: p.Size, Fault: err.Error(), Done: Kept})
}

// rows reads every row, and has those dropped that do not read.
func (r *verification) rows(ctx context.Context) error {
	var found *rows
	err := r.e.d.Store.View(ctx, func(rd store.Reader) error { found = readRows(rd); return nil })
	if err != nil || found.fault() == nil {
		return err
	}
	if err := r.e.mendSoon(ctx, writeWithin); err != nil {
		return err
	}
	for _, row := range found.bad {
		r.found(Finding{Kind: "row", Name: row.Bucket + "/" + hex.EncodeToString(row.Key), Fault: row.Cause.Error(), Done: Dropped})
	}
	return nil
}

// objects reads every object that has a row.
func (r *verification) objects(ctx context.Context) error {
	if err := r.rows(ctx); err != nil {
		return err
	}
	return scan(ctx, r.e, blobs, func(name b3.Digest, b blobRow) error { return r.object(ctx, name, b) })
}

// object reads one object.
func (r *verification) object(ctx context.Context, name b3.Digest, b blobRow) error {
	err := r.e.cas.Verify(name, b.Size, func(n int) error {
		if err := pause(ctx, n, r.o.rate); err != nil {
			return err
		}
		r.v.Bytes += int64(n)
		if has, _ := r.e.room.held(); r.o.Progress != nil {
			r.o.Progress(r.v.Bytes, has.bytes)
		}
		return nil
	})
	missing, corrupt := errors.Is(err, fs.ErrNotExist), errors.Is(err, cas.ErrCorrupt)
	if missing || corrupt {
		if _, gone := find(ctx, r.e, blobs, name); errors.Is(gone, ErrNotFound) {
			return nil // evicted in the meantime
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.v.Objects++
	if err == nil {
		return nil
	}
	f := Finding{Kind: "object", Name: name.String(), Size: b.Size, Fault: err.Error(), Done: Kept}
	if bad, ok := errors.AsType[*cas.CorruptError](err); ok {
		f.Fault = bad.Reason
	} else if missing {
		f.Fault = "its file is missing"
	}
	r.e.sums.forget(name)
	if missing || corrupt { // a file that the disk does not read stays where it is
		if err := r.mend(ctx, name, err, &f); err != nil {
			return err
		}
	}
	if f.Done == Kept {
		r.e.damaged("object", f.Name+": "+f.Fault) // else the writer does
	}
	r.found(f)
	return nil
}

// mend sets the object aside and fetches it anew, if the run is to fix what it finds.
func (r *verification) mend(ctx context.Context, name b3.Digest, cause error, f *Finding) error {
	var urls []Stored
	err := scan(ctx, r.e, paths, func(_ b3.Digest, row Stored) error {
		if row.Digest == name && len(urls) < refetchMost {
			urls = append(urls, row)
		}
		return nil
	})
	if len(urls) > 0 {
		f.URL = urls[0].URL
	}
	if err != nil || !r.o.Fix {
		return err
	}
	if err := r.e.write(ctx, asideJob(name, cause)); err != nil {
		return err
	}
	f.Done = Dropped
	for _, row := range urls {
		if r.e.refetch(ctx, row) == nil {
			f.Done = Refetched
		}
	}
	return context.Cause(ctx)
}

// refetch fetches a URL whose object was set aside.
func (e *Engine) refetch(ctx context.Context, row Stored) error {
	t, err := parsePath(row.Path)
	if err == nil {
		_, err = e.fill(ctx, &fillJob{target: t, path: row.Path, try: postTry, counted: true})
	}
	return err
}

// pause waits as long as n bytes take at a rate.
func pause(ctx context.Context, n int, rate int64) error {
	if rate <= 0 || n == 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runScrubber verifies everything that is stored each edge.scrub.every, slowly, and fixes what it can.
func (e *Engine) runScrubber(ctx context.Context) error {
	defer e.scrubTick.Stop()
	tick := e.scrubTick.C()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
			if err := e.scrub(ctx); err != nil && ctx.Err() == nil {
				e.log.Error("scrub", "reason", err.Error(), "next", "it is tried again in a minute")
			}
		}
	}
}

// scrub makes a run if one is due. A node that has made none begins to count at its first start.
func (e *Engine) scrub(ctx context.Context) error {
	c := e.Config().Scrub
	if c.Every == 0 || e.d.Amnesia {
		return nil
	}
	now, last := e.now(), e.cas.LastScrub()
	if last.IsZero() || last.After(now) {
		return e.cas.NoteScrub(now)
	}
	if now.Sub(last) < c.Every.D() {
		return nil
	}
	v, err := e.verify(ctx, VerifyOptions{Fix: true, rate: c.Rate.Bytes()})
	if err != nil {
		return err
	}
	e.log.Info("scrub", "objects", v.Objects, "bytes", v.Bytes, "packs", v.Packs, "bad", v.Bad)
	return e.cas.NoteScrub(e.now())
}
