package content

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
func (s *Store) Verify(ctx context.Context, o VerifyOptions) (v Verified, err error) {
	if !s.verifying.CompareAndSwap(false, true) {
		return v, ErrVerifying
	}
	defer s.verifying.Store(false)
	return s.verify(ctx, o)
}

func (s *Store) verify(ctx context.Context, o VerifyOptions) (Verified, error) {
	r := &verification{s: s, o: o}
	var err error
	if !s.d.Owner.Amnesia() {
		err = r.objects(ctx)
	}
	if err == nil {
		err = s.d.Owner.Rehash(ctx, r.pack)
	}
	return r.v, err
}

// verification is one run of Verify.
type verification struct {
	s   *Store
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

// TaskScrubber is the task that verifies regularly.
const TaskScrubber = "scrubber"

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
	r.s.d.Owner.Damaged("pack", p.ID+": "+err.Error())
	r.found(Finding{Kind: "pack", Name: p.ID, Size: p.Size, Fault: err.Error(), Done: Kept})
}

// rows reads every row and reports and drops those that do not read.
func (r *verification) rows(ctx context.Context) error {
	var found *tables.Content
	err := r.s.d.Store.View(ctx, func(rd store.Reader) error { found = tables.Read(rd); return nil })
	if err != nil || found.Fault() == nil {
		return err
	}
	if err := r.s.Repair(ctx); err != nil {
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
	err := tables.Scan(ctx, r.s.d.Store, tables.Blobs, func(name b3.Digest, b tables.BlobRow) error {
		if len(r.bad) == damageBatch {
			if err := r.reportDamage(ctx); err != nil {
				return err
			}
		}
		return r.object(ctx, name, b)
	})
	if err != nil {
		for _, d := range r.bad { // found before the error
			r.s.d.Owner.Damaged("object", d.f.Name+": "+d.f.Fault)
			r.found(d.f)
		}
		return err
	}
	return r.reportDamage(ctx)
}

// object reads one object.
func (r *verification) object(ctx context.Context, name b3.Digest, b tables.BlobRow) error {
	err := r.s.d.Dir.Verify(name, b.Size, func(n int) error {
		if err := pause(ctx, n, r.o.rate); err != nil {
			return err
		}
		r.v.Bytes += int64(n)
		if has, _ := r.s.room.held(); r.o.Progress != nil {
			r.o.Progress(r.v.Bytes, has.Bytes)
		}
		return nil
	})
	missing, bad := errors.Is(err, fs.ErrNotExist), errors.Is(err, cas.ErrCorrupt)
	if missing || bad {
		if _, gone := tables.Find(ctx, r.s.d.Store, tables.Blobs, name); errors.Is(gone, asset.ErrNotFound) {
			return nil // it was evicted
		}
	}
	unsure := false // a member that cannot be asked may have the file
	if missing && r.s.d.Members != nil {
		if err = r.s.regain(ctx, name, b.Size); err != nil {
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
	if c, ok := errors.AsType[*cas.CorruptError](err); ok {
		f.Fault = c.Reason
	} else if missing {
		f.Fault = "its file is missing"
	}
	r.s.sums.forget(name)
	if unsure || !missing && !bad { // a file that the disk does not read is not moved
		r.s.d.Owner.Damaged("object", f.Name+": "+f.Fault)
		r.found(f)
		return nil
	}
	r.bad = append(r.bad, damage{aside: corrupt(name, err), f: f})
	return nil
}

// reportDamage reports the damaged objects that were found since the last call. With
// VerifyOptions.Fix, it first sets them aside and fetches them again.
func (r *verification) reportDamage(ctx context.Context) error {
	if len(r.bad) == 0 {
		return nil
	}
	at, job := map[b3.Digest]*damage{}, &setAside{}
	for i := range r.bad {
		at[r.bad[i].aside.name] = &r.bad[i]
		job.all = append(job.all, r.bad[i].aside)
	}
	err := r.s.eachURL(ctx, func(_ b3.Digest, row tables.Stored) error {
		if d := at[row.Digest]; d != nil && len(d.urls) < refetchMost {
			d.urls = append(d.urls, row)
		}
		return nil
	})
	if err == nil && r.o.Fix {
		err = r.s.write(ctx, job)
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
			r.s.d.Owner.Damaged("object", d.f.Name+": "+d.f.Fault)
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
		if r.s.d.Owner.Refetch(ctx, row) == nil {
			done = Refetched
		}
	}
	return done
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
func (s *Store) runScrubber(ctx context.Context) error {
	defer s.scrubTick.Stop()
	tick := s.scrubTick.C()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
			if err := s.scrub(ctx); err != nil && ctx.Err() == nil {
				s.d.Log.Error("scrub", "reason", err.Error(), "next", "the next try is in a minute")
			}
		}
	}
}

// scrub makes a run if one is due. The first interval begins at the first start of the node.
func (s *Store) scrub(ctx context.Context) error {
	c := s.d.Config().Scrub
	if c.Every == 0 || s.d.Owner.Amnesia() {
		return nil
	}
	now, last := s.d.Now(), s.d.Dir.LastScrub()
	if last.IsZero() || last.After(now) {
		return s.d.Dir.NoteScrub(now)
	}
	if now.Sub(last) < c.Every.D() {
		return nil
	}
	v, err := s.verify(ctx, VerifyOptions{Fix: true, rate: c.Rate.Bytes()})
	if err != nil {
		return err
	}
	s.d.Log.Info("scrub", "objects", v.Objects, "bytes", v.Bytes, "packs", v.Packs, "bad", v.Bad)
	return s.d.Dir.NoteScrub(s.d.Now())
}
