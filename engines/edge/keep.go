package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

const keysWalk = 10_000 // rows that are read for one page of Keys

// Keep pins, unpins or removes stored URLs, and objects without a URL by their digests. It returns
// a PinsError, and changes nothing, if a pin would exceed a cap. It waits for the content store
// until ctx ends. Other errors are those of errors.go.
func (e *Engine) Keep(ctx context.Context, do asset.Action, urls []string) (asset.KeepResult, error) {
	k := &keepJob{do: do}
	for _, text := range urls {
		url, err := parseKey(do, text)
		if err != nil {
			return asset.KeepResult{}, err
		}
		k.urls = append(k.urls, url)
	}
	err := e.count()
	switch {
	case err != nil:
	case e.d.Amnesia:
		err = asset.ErrAmnesia
	case !e.opened.Load():
		err = asset.ErrStore
	}
	if err != nil {
		return asset.KeepResult{}, err
	}
	lost := e.withoutFile(k)
	out, err := e.keepSoon(ctx, k)
	out.Missing = append(out.Missing, lost...)
	return out, err
}

// withoutFile removes the digests to pin whose file is missing, as after a restore, and returns
// them. Such an object must be put again, whereas the object of a URL can be fetched again.
func (e *Engine) withoutFile(k *keepJob) (lost []string) {
	if k.do != asset.Pin {
		return nil
	}
	k.urls = slices.DeleteFunc(k.urls, func(key string) bool {
		d, err := b3.Parse(key)
		gone := err == nil && e.cas.Used(d).IsZero()
		if gone {
			lost = append(lost, key)
		}
		return gone
	})
	return lost
}

// keepSoon sends a change of pins to the CAS writer and waits for it.
func (e *Engine) keepSoon(ctx context.Context, k *keepJob) (asset.KeepResult, error) {
	slices.Sort(k.urls)
	k.urls = slices.Compact(k.urls)
	if err := e.write(ctx, &writeJob{keep: k}); err != nil {
		return asset.KeepResult{}, err
	}
	if k.do == asset.Remove && len(k.out.Changed) > 0 {
		n := fmt.Sprint(len(k.out.Changed), " URLs")
		e.events.Publish(asset.Event{
			Kind:   "cas_remove",
			Of:     asset.Shown(k.out.Changed[0]),
			Result: n,
			Size:   k.out.Freed,
		})
	}
	if err := e.withdraw(ctx, k.ended); err != nil {
		e.log.Warn("withdraw", "objects", len(k.ended), "reason", err.Error(), "next",
			"their records expire within a day")
	}
	return k.out, nil
}

// keepJob is a call of Keep on its way to the writer. The caller may read out and ended after the
// job has succeeded.
type keepJob struct {
	do    asset.Action
	urls  []string // sorted, distinct
	out   asset.KeepResult
	ended []b3.Digest // objects that are no longer announced
}

// keep processes a job. It is called by the task cas_writer.
func (e *Engine) keep(ctx context.Context, k *keepJob) error {
	has, _ := e.room.held()
	c := tables.Keep{Do: k.do, URLs: k.urls, Pinned: has.Pinned, Pins: has.Pins}
	c.MaxPinned, c.MaxPins = e.Config().CAS.PinCaps()
	done, err := store.Commit(ctx, e.d.Store, store.Work, c)
	if err != nil {
		return err
	}
	e.applyChange(ctx, done.Change)
	k.out, k.ended = done.KeepResult, done.Ended
	k.out.Freed = -done.Tally.Bytes
	return nil
}

// pinFilled pins a URL that was filled. If the pin is refused, why describes the reason.
func (e *Engine) pinFilled(ctx context.Context, url string) (pinned bool, why string, err error) {
	if pinned, err = e.isPinned(ctx, url); pinned || err != nil {
		return pinned, "", err
	}
	done, err := e.keepSoon(ctx, &keepJob{do: asset.Pin, urls: []string{url}})
	full, over := errors.AsType[*asset.PinsError](err)
	switch {
	case over:
		return false, full.Error(), nil
	case err == nil && len(done.Missing) > 0:
		return false, "it was evicted before it could be pinned", nil
	}
	return err == nil, "", err
}

func (e *Engine) isPinned(ctx context.Context, url string) (bool, error) {
	row, err := tables.Find(ctx, e.d.Store, tables.Keys, tables.KeyOf(url))
	return row.Pinned, asset.Ignore(err, asset.ErrNotFound)
}

// KeyQuery selects URLs. Each field may be zero, except Limit.
type KeyQuery struct {
	Prefix string // of the URLs
	After  string // the last URL of the previous page
	Limit  int    // URLs of one page, 1 to MaxKeys
	Pinned bool   // only pinned URLs
}

// KeyInfo describes a URL with a stored object, or a pinned URL.
type KeyInfo struct {
	tables.Stored           // without a digest if the object of a pinned URL was lost
	Pinned        bool      // the URL is not evicted
	Fetched       time.Time // zero if an older release stored it
	Used          time.Time // the last use of the object, to 10 minutes; zero if its file is missing
}

// Keys lists URLs in order. It reads at most 10,000 rows, so a page may have fewer than Limit URLs
// even if more pages follow. next is the After of the following page, or "" after the last page.
func (e *Engine) Keys(ctx context.Context, q KeyQuery) (page []KeyInfo, next string, err error) {
	page, next, err = e.readKeys(ctx, q)
	if errors.Is(err, store.ErrCorrupt) && e.repairSoon(ctx, repairWithin) == nil {
		page, next, err = e.readKeys(ctx, q)
	}
	for i := range page {
		if !page[i].Digest.IsZero() {
			page[i].Used = e.cas.Used(page[i].Digest)
		}
	}
	return page, next, err
}

func (e *Engine) readKeys(ctx context.Context, q KeyQuery) (page []KeyInfo, next string, err error) {
	from := tables.URLKey{Head: q.Prefix[:min(len(q.Prefix), tables.KeyHead)]}
	if q.After != "" && q.After >= q.Prefix {
		from = tables.KeyOf(q.After)
	}
	err = e.d.Store.View(ctx, func(r store.Reader) error {
		seen, last := 0, ""
		for k, row := range tables.Keys.From(r, from) {
			url := row.URL(k)
			switch {
			case url == q.After:
				continue
			case !strings.HasPrefix(k.Head, q.Prefix[:min(len(q.Prefix), tables.KeyHead)]):
				return nil
			case len(page) == q.Limit, seen == keysWalk:
				next = last
				return nil
			}
			seen++
			last = url
			if !strings.HasPrefix(url, q.Prefix) || q.Pinned && !row.Pinned {
				continue
			}
			info := KeyInfo{Stored: tables.Stored{URL: url}, Pinned: row.Pinned}
			if row.Fetched != 0 {
				info.Fetched = time.Unix(0, row.Fetched)
			}
			if stored, known := tables.Paths.Get(r, k.Hash); known {
				info.Stored = stored
			}
			page = append(page, info)
		}
		return nil
	})
	return page, next, err
}
