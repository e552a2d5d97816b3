package content

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// Keep pins, unpins or removes stored URLs. It returns the objects that are no longer announced
// beside its result. It returns a PinsError, and changes nothing, if a pin would exceed a cap. It
// waits for the content store until ctx ends.
func (s *Store) Keep(ctx context.Context, do asset.Action, urls []string) (
	out asset.KeepResult,
	ended []b3.Digest,
	err error,
) {
	k := &keepJob{do: do, urls: slices.Clone(urls)}
	lost := s.withoutFile(k)
	slices.Sort(k.urls)
	k.urls = slices.Compact(k.urls)
	if err = s.write(ctx, k); err != nil {
		return asset.KeepResult{Missing: lost}, nil, err
	}
	if do == asset.Remove && len(k.out.Changed) > 0 {
		n := fmt.Sprint(len(k.out.Changed), " URLs")
		s.d.Owner.Event(asset.Event{
			Kind:   "cas_remove",
			Of:     asset.Shown(k.out.Changed[0]),
			Result: n,
			Size:   k.out.Freed,
		})
	}
	k.out.Missing = append(k.out.Missing, lost...)
	return k.out, k.ended, nil
}

// withoutFile removes the digests to pin whose file is missing, as after a restore, and returns
// them. Such an object must be put again, whereas the object of a URL can be fetched again.
func (s *Store) withoutFile(k *keepJob) (lost []string) {
	if k.do != asset.Pin {
		return nil
	}
	k.urls = slices.DeleteFunc(k.urls, func(key string) bool {
		d, err := b3.Parse(key)
		gone := err == nil && s.d.Dir.Used(d).IsZero()
		if gone {
			lost = append(lost, key)
		}
		return gone
	})
	return lost
}

// keepJob is a call of Keep on its way to the writer. The caller may read out and ended after the
// job has succeeded.
type keepJob struct {
	bare
	do    asset.Action
	urls  []string // sorted, distinct
	out   asset.KeepResult
	ended []b3.Digest // objects that are no longer announced
}

func (k *keepJob) apply(ctx context.Context, s *Store) error {
	return s.repairing(ctx, func() error { return s.keep(ctx, k) })
}

// keep processes a job. It is called by the task cas_writer.
func (s *Store) keep(ctx context.Context, k *keepJob) error {
	has, _ := s.room.held()
	c := tables.Keep{Do: k.do, URLs: k.urls, Pinned: has.Pinned, Pins: has.Pins}
	c.MaxPinned, c.MaxPins = s.d.Config().CAS.PinCaps()
	done, err := store.Commit(ctx, s.d.Store, store.Work, c)
	if err != nil {
		return err
	}
	s.applyChange(ctx, done.Change)
	k.out, k.ended = done.KeepResult, done.Ended
	k.out.Freed = -done.Tally.Bytes
	return nil
}

// PinFilled pins a URL that was filled. If the pin is refused, why describes the reason.
func (s *Store) PinFilled(ctx context.Context, url string) (pinned bool, why string, err error) {
	if pinned, err = s.Pinned(ctx, url); pinned || err != nil {
		return pinned, "", err
	}
	done, _, err := s.Keep(ctx, asset.Pin, []string{url})
	full, over := errors.AsType[*asset.PinsError](err)
	switch {
	case over:
		return false, full.Error(), nil
	case err == nil && len(done.Missing) > 0:
		return false, "it was evicted before it could be pinned", nil
	}
	return err == nil, "", err
}

// Pinned reports whether a URL is pinned.
func (s *Store) Pinned(ctx context.Context, url string) (bool, error) {
	row, err := tables.Find(ctx, s.d.Store, tables.Keys, tables.KeyOf(url))
	return row.Pinned, asset.Ignore(err, asset.ErrNotFound)
}

// placeJob adds URLs of placements on its way to the writer. The caller may read missing after the
// job has succeeded.
type placeJob struct {
	bare
	rows     []tables.Stored // of distinct objects; a size below 0 is that of the object
	announce b3.Digest       // the object to announce; zero: none
	missing  []string        // URLs whose object is not stored, or has another size
}

// Place adds URLs of placements, which are pinned, and marks an object to be announced unless its
// digest is zero. The rows are of distinct objects; a size below 0 is that of the object. Place
// returns the URLs whose object is not stored or has another size. It returns a PinsError, and
// changes nothing, if the pins would exceed a cap.
func (s *Store) Place(ctx context.Context, rows []tables.Stored, announce b3.Digest) (missing []string, err error) {
	j := &placeJob{rows: rows, announce: announce}
	err = s.write(ctx, j)
	return j.missing, err
}

func (j *placeJob) apply(ctx context.Context, s *Store) error {
	return s.repairing(ctx, func() error { return s.place(ctx, j) })
}

// place processes a job. It is called by the task cas_writer.
func (s *Store) place(ctx context.Context, j *placeJob) error {
	if err := s.makeRoom(ctx, 0, int64(len(j.rows))); err != nil {
		return err
	}
	c := tables.Place{Rows: j.rows, Announce: j.announce, Left: s.PinRoom()}
	done, err := store.Commit(ctx, s.d.Store, store.Work, c)
	if err != nil {
		return err
	}
	s.applyChange(ctx, done.Change)
	j.missing = done.Missing
	return nil
}

// Row returns the row of a URL whose object can be read.
func (s *Store) Row(ctx context.Context, t asset.Target) (tables.Stored, error) {
	o, row, err := s.Open(ctx, t)
	if err == nil {
		o.Close()
	}
	return row, err
}

// renewal records that a host has confirmed an object: the writer commits several of them together.
type renewal struct {
	bare
	row tables.Stored
}

func (j *renewal) apply(ctx context.Context, s *Store) error {
	done, err := store.Commit(ctx, s.d.Store, store.Work, tables.Renew{Row: j.row})
	s.applyChange(ctx, done)
	return err
}

// renew processes the renewals of a burst. The store commits them together.
func (s *Store) renew(ctx context.Context, jobs []*writeJob) {
	ctx = context.WithoutCancel(ctx)
	rows := make([]*flow.Reply[tables.Change], len(jobs))
	for i, j := range jobs {
		rows[i] = flow.NewReply[tables.Change]()
		command := tables.Renew{Row: j.change.(*renewal).row}
		err := store.Hand(ctx, s.d.Store, store.Work, command,
			func(done tables.Change, err error) { rows[i].Settle(done, err) })
		if err != nil {
			rows[i].Fail(err)
		}
	}
	for i, j := range jobs {
		done, err := rows[i].Wait(ctx)
		if errors.Is(err, store.ErrCorrupt) {
			err = s.repairing(ctx, func() error { return j.change.apply(ctx, s) })
		}
		s.applyChange(ctx, done)
		j.end(s.Failed(err))
	}
}

// Renew replaces the row of a URL whose object its host has confirmed. It waits at most 20 s.
func (s *Store) Renew(ctx context.Context, row tables.Stored) error {
	return s.write(ctx, &renewal{row: row})
}

// removal removes a URL that its host no longer has, unless it is pinned.
type removal struct {
	bare
	url string
}

func (j *removal) apply(ctx context.Context, s *Store) error {
	return s.repairing(ctx, func() error {
		pinned, err := s.Pinned(ctx, j.url)
		if pinned || err != nil {
			return err
		}
		return s.keep(ctx, &keepJob{do: asset.Remove, urls: []string{j.url}})
	})
}

// Forget removes a URL that its host no longer has, unless it is pinned. It waits at most 20 s.
func (s *Store) Forget(ctx context.Context, url string) error {
	return s.write(ctx, &removal{url: url})
}
