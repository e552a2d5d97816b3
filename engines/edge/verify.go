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
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// Finding describes damaged content.
type Finding struct {
	Kind  string // object, pack or row
	Name  string // the digest of an object, the id of a pack, or the bucket and the key of a row
	URL   string // a URL of the object, with its query
	Size  int64  // bytes
	Fault string
	Done  string // kept, refetched or dropped
}

// Values of Finding.Done. A dropped object stays in the quarantine folder for a while.
const (
	Kept      = "kept"
	Refetched = "refetched"
	Dropped   = "dropped"
)

// Verified counts the content that a Verify has read.
type Verified struct {
	Objects, Packs int
	Bytes          int64 // of objects
	Bad            int
}

// VerifyOptions are the options of Verify. Progress and Found may be nil.
type VerifyOptions struct {
	// Fix sets damaged objects aside and fetches them again if that is allowed.
	Fix      bool
	Progress func(done, total int64) // bytes of objects
	Found    func(Finding)
	rate     int64 // bytes a second; 0 means no limit
}

// ErrVerifying is returned while another Verify runs.
var ErrVerifying = fmt.Errorf("%w: the edge is being verified already", flow.ErrBusy)

// refetchMost bounds the URLs of one object that are fetched again at once. Others are fetched
// when they are requested.
const refetchMost = 64

// Verify reads every object and every pack. It reports those whose bytes do not match their digest
// and those that the disk does not read. A damaged object that is kept is hashed again before its
// next use. Rows that do not read are always dropped. Verify ends early if ctx ends.
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
	e   *Engine
	o   VerifyOptions
	v   Verified
	bad []damage // objects that are not yet reported
}

// damage describes a damaged object.
type damage struct {
	aside corruptObject
	f     Finding
	urls  []tables.Stored // of the object, at most refetchMost
}

// damageBatch is the number of damaged objects that share one scan of the rows. Each needs memory
// for up to refetchMost URLs.
const damageBatch = 1024

func (r *verification) found(f Finding) {
	r.v.Bad++
	if r.o.Found != nil {
		r.o.Found(f)
	}
}

// pack records the result for one pack. The pack set no longer serves a damaged one.
func (r *verification) pack(p pack.Info, err error) {
	r.v.Packs++
	if err == nil {
		return
	}
	r.e.damaged("pack", p.ID+": "+err.Error())
	r.found(Finding{Kind: "pack", Name: p.ID, Size: p.Size, Fault: err.Error(), Done: Kept})
}

// rows reads every row and reports and drops those that do not read.
func (r *verification) rows(ctx context.Context) error {
	var found *tables.Content
	err := r.e.d.Store.View(ctx, func(rd store.Reader) error { found = tables.Read(rd); return nil })
	if err != nil || found.Fault() == nil {
		return err
	}
	if err := r.e.repairSoon(ctx, writeWithin); err != nil {
		return err
	}
	for _, row := range found.Bad {
		r.found(Finding{
			Kind:  "row",
			Name:  row.Bucket + "/" + hex.EncodeToString(row.Key),
			Fault: row.Cause.Error(),
			Done:  Dropped,
		})
	}
	return nil
}

// objects reads every object that has a row.
func (r *verification) objects(ctx context.Context) error {
	if err := r.rows(ctx); err != nil {
		return err
	}
	err := tables.Scan(ctx, r.e.d.Store, tables.Blobs, func(name b3.Digest, b tables.BlobRow) error {
		if len(r.bad) == damageBatch {
			if err := r.reportDamage(ctx); err != nil {
				return err
			}
		}
		return r.object(ctx, name, b)
	})
	if err != nil {
		for _, d := range r.bad { // found before the error
			r.e.damaged("object", d.f.Name+": "+d.f.Fault)
			r.found(d.f)
		}
		return err
	}
	return r.reportDamage(ctx)
}

// object reads one object.
func (r *verification) object(ctx context.Context, name b3.Digest, b tables.BlobRow) error {
	err := r.e.cas.Verify(name, b.Size, func(n int) error {
		if err := pause(ctx, n, r.o.rate); err != nil {
			return err
		}
		r.v.Bytes += int64(n)
		if has, _ := r.e.room.held(); r.o.Progress != nil {
			r.o.Progress(r.v.Bytes, has.Bytes)
		}
		return nil
	})
	missing, corrupt := errors.Is(err, fs.ErrNotExist), errors.Is(err, cas.ErrCorrupt)
	if missing || corrupt {
		if _, gone := tables.Find(ctx, r.e.d.Store, tables.Blobs, name); errors.Is(gone, asset.ErrNotFound) {
			return nil // it was evicted
		}
	}
	unsure := false // a member that cannot be asked may have the file
	if missing && r.e.d.Members != nil {
		if err = r.e.regain(ctx, name, b.Size); err != nil {
			unsure = !errors.Is(err, asset.ErrNotFound)
			err = fs.ErrNotExist
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
	if unsure || !missing && !corrupt { // a file that the disk does not read is not moved
		r.e.damaged("object", f.Name+": "+f.Fault)
		r.found(f)
		return nil
	}
	r.bad = append(r.bad, damage{aside: quarantineJob(name, err).aside[0], f: f})
	return nil
}

// reportDamage reports the damaged objects that were found since the last call. With
// VerifyOptions.Fix, it first sets them aside and fetches them again.
func (r *verification) reportDamage(ctx context.Context) error {
	if len(r.bad) == 0 {
		return nil
	}
	at, job := map[b3.Digest]*damage{}, &writeJob{}
	for i := range r.bad {
		at[r.bad[i].aside.name] = &r.bad[i]
		job.aside = append(job.aside, r.bad[i].aside)
	}
	err := r.e.eachURL(ctx, func(_ b3.Digest, row tables.Stored) error {
		if d := at[row.Digest]; d != nil && len(d.urls) < refetchMost {
			d.urls = append(d.urls, row)
		}
		return nil
	})
	if err == nil && r.o.Fix {
		err = r.e.write(ctx, job)
	}
	if err != nil {
		return err
	}
	for _, d := range r.bad {
		if len(d.urls) > 0 {
			d.f.URL = d.urls[0].URL
		}
		if r.o.Fix { // the writer has counted the damage
			d.f.Done = r.refetched(ctx, d.urls)
		} else {
			r.e.damaged("object", d.f.Name+": "+d.f.Fault)
		}
		r.found(d.f)
	}
	r.bad = r.bad[:0]
	return context.Cause(ctx)
}

// refetched fetches the URLs of an object that was set aside, and returns Refetched if one
// succeeds.
func (r *verification) refetched(ctx context.Context, urls []tables.Stored) (done string) {
	done = Dropped
	for _, row := range urls {
		if r.e.refetch(ctx, row) == nil {
			done = Refetched
		}
	}
	return done
}

// refetch fetches a URL, or an object without one from the fleet, after it was set aside.
func (e *Engine) refetch(ctx context.Context, row tables.Stored) error {
	if row.URL == objectURL(row.Digest) {
		return e.Fetch(ctx, row.Digest, Near{Placed: true})
	}
	t, path, err := asset.ParseURL(row.URL)
	if err == nil {
		_, err = e.fill(ctx, &fillJob{Target: t, path: path, try: postTry, counted: true})
	}
	return err
}

// pause waits for the time in which n bytes are read at rate bytes a second; 0 means no wait.
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

// runScrubber verifies all stored content once per edge.scrub.every, slowly, and fixes damage.
func (e *Engine) runScrubber(ctx context.Context) error {
	defer e.scrubTick.Stop()
	tick := e.scrubTick.C()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
			if err := e.scrub(ctx); err != nil && ctx.Err() == nil {
				e.log.Error("scrub", "reason", err.Error(), "next", "the next try is in a minute")
			}
		}
	}
}

// scrub makes a run if one is due. The first interval begins at the first start of the node.
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
